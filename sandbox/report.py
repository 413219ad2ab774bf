"""The result of testing engines and fences, and its text for an operator."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import SandboxUnavailable


@dataclass(frozen=True)
class Check:
    """One line of a report. `fix` is empty if `ok`. A check that is not `needed` may fail: it is only a
    warning."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def first_problem(checks: Sequence[Check]) -> SandboxUnavailable | None:
    """The first required check that failed, or None."""
    for each in checks:
        if each.needed and not each.ok:
            return SandboxUnavailable(each.detail, each.fix)
    return None


def render(checks: Sequence[Check]) -> str:
    width = max(len(each.name) for each in checks)
    lines = []
    for each in checks:
        word = "works" if each.ok else "OFF" if each.needed else "weak"
        lines.append(f"{each.name:{width}}  {word:5}  {each.detail}")
        if each.fix:
            lines.append(f"{'':{width}}         fix: {each.fix}")
    return "\n".join(lines)

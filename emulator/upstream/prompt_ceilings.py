"""Notice a server that cuts prompts and does not say so, as Ollama does above its loaded context.

Such a server reports the same number of prompt tokens for prompts of different lengths: its context is full.
An estimate alone proves nothing, since tokenizers differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_MAX_MODELS = 256
_LONGER = 1.1
"""How much longer than reported a prompt must seem."""
_EQUAL = 0.02
_DIFFERENT = 0.05


@dataclass
class PromptCeilings:
    """The longest prompts that the models of all upstreams seem to read. Safe to share between threads."""

    _last: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By upstream and model: the tokens reported and estimated for the last prompt that seemed longer."""
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def is_cut(self, upstream: str, model: str, reported: int, estimated: int) -> bool:
        """Return True if the server has read only a part of a prompt."""
        key = (upstream, model)
        if estimated < _LONGER * reported:
            return False
        if _differ(self._known.get(key, 0), reported) <= _EQUAL:
            return True
        before = self._last.pop(key, None)
        self._last[key] = (reported, estimated)
        while len(self._last) > _MAX_MODELS:
            self._last.pop(next(iter(self._last)), None)
        if before is None or _differ(before[0], reported) > _EQUAL:
            return False
        if _differ(before[1], estimated) < _DIFFERENT:
            return False  # the same prompt again
        if len(self._known) >= _MAX_MODELS:
            self._known.clear()
        self._known[key] = reported
        return True


def _differ(one: int, other: int) -> float:
    return abs(one - other) / max(one, other, 1)

"""Run cells in a kernel, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.engine import JSON, Finished, Paused, Step
from sandbox.kernel.engine import KernelEngine
from sandbox.kernel.notebook import Notebook
from sandbox.outputs import Output


class Cells:
    """One session of cells, without their outputs."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def start(self, source: str) -> Step:
        return _step(self.notebook.run(source))

    def resume(self, *results: JSON) -> Step:
        return _step(self.notebook.resume_with(results))

    def kill(self) -> None:
        self.notebook.kill()


@contextmanager
def cells(
    engine: KernelEngine, names: frozenset[str] = frozenset(), preamble: str = ""
) -> Iterator[Cells]:
    """A session in which calls of ``names`` pause."""
    with engine.notebook() as notebook:
        notebook.offer(names, preamble)
        yield Cells(notebook)


def _step(events: Iterator[Output | Step]) -> Step:
    return [each for each in events if isinstance(each, Paused | Finished)][-1]

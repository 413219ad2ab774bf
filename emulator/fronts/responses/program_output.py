"""Writers of the items of programs: ``program`` before the first call, ``program_output`` at the end."""

from __future__ import annotations

from emulator.core.events import ProgramFinished, ProgramStarted
from emulator.fronts.responses.callers import wire_id
from emulator.fronts.responses.output import Events, ItemWriter


class ProgramWriter(ItemWriter):
    def __init__(self, index: int, event: ProgramStarted | ProgramFinished) -> None:
        ids = {"id": event.id, "call_id": wire_id(event.id)}
        if isinstance(event, ProgramStarted):
            fields = {"type": "program", "code": event.code, "fingerprint": event.fingerprint}
        else:
            ids["id"] = event.id.replace("prog_", "prog_out_", 1)
            status = "incomplete" if event.failed else "completed"
            fields = {"type": "program_output", "result": event.output, "status": status}
        super().__init__(index, {**ids, **fields})

    def all_events(self) -> Events:
        yield from self.start()
        yield self._done()

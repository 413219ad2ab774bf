"""What replicas know of each other's kernels, in the store that they share: a record for each container.

All of it is data, read back as the types below and nothing else. Knows nothing of kernels that run here.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import Any

import structlog
from pydantic import ConfigDict, TypeAdapter, ValidationError

from emulator.events import Image, Logs
from emulator.interpreter.cell import CellWaiting, RunningCell
from emulator.interpreter.execution import Transcript
from emulator.programs.program import Call
from emulator.settings import MemoryLimit, Order
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed
from emulator.tools.toolset import Toolset
from sandbox.kernel.parked import Parked

log = structlog.get_logger()

LEASE_SECONDS = 10.0
"""After which what a dead replica held is free."""
_RENEW_SECONDS = 2.5
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class SyncedFiles:
    """How far `FileSync` was. Files are (path, size, modification time)."""

    version: int | None = None
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StoredCell:
    """A cell that waits for the results of its calls, as `RunningCell` has it."""

    key: str
    code: str
    tools: list[dict[str, Any]]
    order: Order
    calls: dict[str, Call]
    ids: list[str]
    notes: list[str]
    seconds: float
    stdout: list[str]
    stderr: list[str]
    displays: list[dict[str, str]]
    outputs: list[Logs | Image]
    truncated: list[str]


@dataclass(frozen=True)
class KernelRecord:
    memory_limit: MemoryLimit
    ran: bool
    """A cell has run in the container."""
    open: bool
    """There is a kernel; one that is not `parked` ends with its replica, and is nobody else's."""
    busy: bool
    """A cell runs, or did when its replica was last heard of."""
    parked: Parked | None = None
    files: SyncedFiles = field(default_factory=SyncedFiles)
    tools: list[dict[str, Any]] | None = None
    """Whose functions the kernel knows."""
    cell: StoredCell | None = None
    stamp: str = field(default_factory=lambda: secrets.token_hex(8))
    """Another one with each change, so that a replica knows whether it was the last one here."""

    def without_kernel(self) -> KernelRecord:
        """The kernel that there was has been ended."""
        return KernelRecord(self.memory_limit, self.ran, open=True, busy=False)


_ONE: Any = tuple  # mypy wants to know of what
_RECORD: TypeAdapter[tuple[KernelRecord]] = TypeAdapter(
    _ONE[KernelRecord],  # in a tuple, since a dataclass would have to bring its configuration along
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"),
)


def stored_cell(cell: RunningCell) -> StoredCell | None:
    """None for one that does not wait."""
    if cell.waiting is None:
        return None
    said = cell.transcript
    return StoredCell(
        key=cell.key,
        code=cell.code,
        tools=[dict(tool) for tool in cell.toolset.definitions],
        order=cell.order,
        calls=dict(cell.waiting.calls),
        ids=list(cell.ids),
        notes=list(cell.notes),
        seconds=cell.seconds,
        stdout=said.stdout,
        stderr=said.stderr,
        displays=[dict(shapes) for shapes in said.displays],
        outputs=said.outputs,
        truncated=sorted(said.truncated),
    )


def waiting_cell(stored: StoredCell) -> RunningCell:
    said = Transcript(
        [*stored.stdout],
        [*stored.stderr],
        [*stored.displays],
        [*stored.outputs],
        {*stored.truncated},
    )
    return RunningCell(
        stored.key,
        stored.code,
        Toolset.parse(stored.tools),
        stored.order,
        said,
        [*stored.notes],
        stored.seconds,
        [*stored.ids],
        CellWaiting(stored.calls, tuple(stored.outputs)),
    )


class Busy(Exception):
    """Another replica has the container."""


class Lease:
    """A container that is this replica's for now."""

    def __init__(self) -> None:
        self.renewed = monotonic()
        self.ended = Event()

    def holds(self) -> bool:
        """False once another replica may have taken it."""
        return monotonic() - self.renewed < LEASE_SECONDS


class KernelRecords:
    """Safe to share between threads. All methods raise `StoreFailed`."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def get(self, container_id: str) -> KernelRecord | None:
        return _read(self._store.get(_record(container_id)))

    def stamps(self, container_ids: Collection[str]) -> dict[str, str]:
        """Of those that have a record."""
        values = self._store.get_many([_record(each) for each in container_ids])
        found = {each: _read(values.get(_record(each))) for each in container_ids}
        return {each: record.stamp for each, record in found.items() if record is not None}

    def put(self, container_id: str, record: KernelRecord) -> None:
        """The record, and by which calls its cell is found."""
        value = _RECORD.dump_json((record,))
        if len(value) > MAX_VALUE_BYTES and record.cell is not None:
            log.warning("a cell that waits is too large to be shared", container=container_id)
            value = _RECORD.dump_json((_without_cell(record),))
        values = {_record(container_id): value}
        if record.cell is not None:
            values |= {f"cell-call:{key}": container_id.encode() for key in record.cell.calls}
        self._store.put(values)

    def container_of(self, call_id: str) -> str | None:
        """Where the cell waits, or has waited, that made this call."""
        value = self._store.get(f"cell-call:{call_id}")
        return None if value is None else value.decode()

    def forget(self, container_id: str) -> None:
        self._store.delete([_record(container_id)])

    @contextmanager
    def lease(self, container_id: str, seconds: float) -> Iterator[Lease]:
        """The container, for the block alone, of all replicas. Raises `Busy` after ``seconds``."""
        name, holder = f"kernel-lease:{container_id}", secrets.token_hex(16).encode()
        until = monotonic() + seconds
        while not self._hold(name, holder):
            if monotonic() > until:
                raise Busy
            Event().wait(_LOOK_SECONDS)
        lease = Lease()
        renewing = Thread(target=self._renew, args=(name, holder, lease), daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            lease.ended.set()
            renewing.join()
            with suppress(StoreFailed):  # it ends by itself
                self._hold(name, holder, 0.0)

    def _renew(self, name: str, holder: bytes, lease: Lease) -> None:
        while not lease.ended.wait(_RENEW_SECONDS):
            asked = monotonic()
            try:
                if self._hold(name, holder):
                    lease.renewed = asked
                    continue
                lease.renewed = -LEASE_SECONDS
                log.warning("the lease of a container was lost")
                return
            except StoreFailed as error:
                log.warning("the lease of a container was not renewed", reason=str(error))

    def _hold(self, name: str, holder: bytes, seconds: float = LEASE_SECONDS) -> bool:
        def take(value: bytes | None) -> bytes:
            if value not in (None, holder):
                raise Busy
            return holder

        try:
            self._store.change(name, take, seconds)
        except Busy:
            return False
        return True


def _record(container_id: str) -> str:
    return f"kernel:{container_id}"


def _without_cell(record: KernelRecord) -> KernelRecord:
    fields = {name: getattr(record, name) for name in KernelRecord.__dataclass_fields__}
    return KernelRecord(**{**fields, "cell": None})


def _read(value: bytes | None) -> KernelRecord | None:
    if value is None:
        return None
    try:
        (record,) = _RECORD.validate_json(value)
    except ValidationError as error:
        log.warning("the record of a kernel cannot be read", problems=error.error_count())
        return None
    return record

"""What several replicas know together of cells and kernels, in the store that they share."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.interpreter.kernel_places import KernelPlaces
from emulator.interpreter.kernel_records import KernelRecords
from emulator.interpreter.shared_approvals import SharedApprovals
from emulator.settings import Settings
from emulator.storage.key_value import KeyValueStore
from sandbox.kernel.places import PLACES


@dataclass(frozen=True)
class Replicas:
    records: KernelRecords
    approvals: SharedApprovals
    places: KernelPlaces | None = None
    """None where each machine has kernels of its own, as many as it has memory for."""


def replicas_by(store: KeyValueStore, settings: Settings) -> Replicas:
    elsewhere = PLACES[settings.sandbox].connect is not None
    places = KernelPlaces(store, settings.max_kernels) if elsewhere else None
    return Replicas(KernelRecords(store), SharedApprovals(store), places)

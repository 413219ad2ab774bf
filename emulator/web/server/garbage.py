"""Python's collector of cycles, kept from stopping all streams at once.

A collection holds the interpreter, so every thread waits for it. A full one looks at all objects there are:
200,000 of modules and models that stay for ever, and 300 of each open stream, of which next to none are
cycles. With a thousand streams that took 0.1 to 0.4 s, every second or so while they began. So what the
start has made is looked at no more, and whatever comes later is looked at less often.
"""

from __future__ import annotations

import gc

THRESHOLDS = (5_000, 10, 20)
"""New objects, and collections of each generation, before the next (`gc.set_threshold`): 5,000 objects take a
millisecond or two, 50,000 some 20, and a full collection comes after a million that have stayed."""


BEGINNING = (100_000, 10, 20)
"""While the start imports, which makes hundreds of thousands of objects and no cycles to speak of: looking at
them again and again is a tenth of its time."""


def begin() -> None:
    """To be called before what takes long to import."""
    gc.set_threshold(*BEGINNING)


def settle() -> None:
    """To be called once, when a worker has imported and made what it keeps."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

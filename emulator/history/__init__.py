"""What the model saw of a conversation, and the client does not show: one log.

A client knows calls, results and the words of answers. The model also saw its programs with their output,
replies that it was asked to repair, cells and hosted calls with their results. Each answer is one row:

    answer    what the model saw of it                 by the answer, as the client will show it
    open      the program that waits for its results   by the call ids of the answer
    results   hosted calls that the answer has made    by the last result of the request that it answers

The next request is recalled in one query: `History.recalled` is the client's history with the messages that
it lacks, and each answer carries what the model saw of it (`Seen`). What is not found is shown as the client
has it. `keys` says when two answers are the same.
"""

from emulator.history.log import History, recall
from emulator.history.seen import Seen, dialect_of, seen_of, uses_label

__all__ = [
    "History",
    "Seen",
    "dialect_of",
    "recall",
    "seen_of",
    "uses_label",
]

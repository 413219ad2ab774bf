"""The log of what the model saw of a conversation and its client does not show.

A client's history has calls, results and the words of answers. The model also saw its programs with their
output, replies that it was asked to repair, cells, and hosted calls with their results. One answer has up to
two rows:

    answer    the messages of the model's history      key: the answer, as the client will show it (`keys`)
    open      the program that waits for results       key: the ids of the answer's calls

The states of an answer:

* **in progress**: its hosted calls are rows of the journal (`emulator.database.journal`), so a repeated
  request finds their results instead of making them again;
* **stored**: `History.append` writes the rows before the answer's last event. The next request recalls
  all answers of its history in one query; `History.recalled` has the messages that the client lacks, and each
  answer carries what the model saw of it (`ModelView`);
* **ambiguous**: only the conversation identifies the answer, and another one was stored under its key. The
  row becomes empty: neither is recalled;
* **forgotten**: expired, too large or damaged. The model sees the history as the client has it.

What may never happen: a client recalls another client's answer; a stored answer changes, except to
*ambiguous*.
"""

from emulator.history.log import History, recall
from emulator.history.model_view import ModelView, dialect_of, model_view_of, uses_label
from emulator.history.turns import Turns, current_turn, turn_request

__all__ = [
    "History",
    "ModelView",
    "Turns",
    "current_turn",
    "dialect_of",
    "model_view_of",
    "recall",
    "turn_request",
    "uses_label",
]

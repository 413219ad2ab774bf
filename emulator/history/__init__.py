"""The log of what the model saw of a conversation and its client does not show.

A client's history has calls, results and the words of answers. The model also saw its programs with their
output, replies that it was asked to repair, cells, and hosted calls with their results. One answer has up to
three rows:

    results   results of its hosted calls              key: the last result in its request
    answer    the messages of the model's history      key: the answer, as the client will show it (`keys`)
    open      the program that waits for results       key: the ids of the answer's calls

The states of an answer:

* **in progress**: each hosted result is stored before anything reads it, so a repeated request reads the
  result instead of making the call again (`History.save_result`);
* **stored**: `History.append` writes the other rows before the answer's last event. The next request recalls
  all answers of its history in one query; `History.recalled` has the messages that the client lacks, and each
  answer carries what the model saw of it (`ModelView`);
* **ambiguous**: only the conversation identifies the answer, and another one was stored under its key. The
  row becomes empty: neither is recalled;
* **forgotten**: expired, too large or damaged. The model sees the history as the client has it.

What may never happen: a hosted call is made twice (if the results cannot be read, the request is an error);
a client recalls another client's answer; a stored answer changes, except to *ambiguous*.
"""

from emulator.history.log import History, recall
from emulator.history.model_view import ModelView, dialect_of, model_view_of, uses_label

__all__ = [
    "History",
    "ModelView",
    "dialect_of",
    "model_view_of",
    "recall",
    "uses_label",
]

"""One answer: ask the model, have its reply read and judged, ask again if necessary.

    AnswerRequest -> messages -> ReplyReader -> verdict -> AnswerEvents

`pipeline.Pipeline` is the entrance: `read` parses a request once into an `AnswerRequest`, `answer` yields
the events of one answer. The events go to any front (Chat Completions, Responses, Messages). Three paths:

* relayed: nothing to emulate; `relay` passes the upstream's chunks on;
* native: the upstream calls tools itself; `native` passes its chunks on and repairs its calls;
* emulated: the model writes Python; `answerer` asks turn by turn. `first_turn` builds the prompt in the
  model's way (`ways`), `emulator.reply` reads one reply and runs its code, `turn_state` holds what later
  turns need, from which `new_reply` sets up the reader of the next reply.

With hosted tools `hosted_calls` goes around all three: it runs their calls (`running_calls`) and asks for
the answer again with the results. `emulator.history` has what clients do not see.

Laws:

* This room does not know whether the client streams.
* An event that was yielded is never contradicted by a later one.
* Every further request to the model is paid from one budget, the setting `repair_attempts`. Only a cell that
  ran renews it; the number of cells has its own limit.

Start at `pipeline`, then `answerer.Answerer.events`.
"""

"""One answer: ask the model, read its reply, judge it, ask again. Out come answer events for any front.

    ChatCompletionRequest -> AnswerRequest -> messages -> ReplyReader -> verdict -> AnswerEvents

`pipeline.Pipeline` is the door: `read` looks at a request once and gives `AnswerRequest`; `answer` gives
the events of one answer. Where nothing is to be emulated, `relay` passes the upstream's own chunks on.
Otherwise `answerer` asks turn by turn: `first_turn` makes the prompt, `reply_reader` reads one reply, a draft
(`program_draft`, or `cell_draft` with a code interpreter) runs what is in it, `turn_state` says what to
ask next.

Laws: streaming or not is not known here; what was told is never contradicted; every second request to the
model is paid from one budget of repairs.

Start at `pipeline`, then `answerer.Answerer.events`.
"""

"""What the model wrote: one reply, read while it arrives, judged, and its program run.

    deltas -> ReplyReader -> prose | Draft(DraftBlock ...) -> Judge -> program or cell -> verdict

`reply_reader` reads one reply. Its prose is streamed by `prose`; each block goes to `draft`, which asks
`judge` whether the block runs, is shown or is asked about, and `quotations` whether another author wrote
the call. A block that runs becomes part of the `reply_program` or is a `reply_cell`. The model is asked about
words, too, if they are a call in no known syntax (`unknown_syntax`), or arguments without a name. `verdicts`
says what was wrong with a reply. Calls that an upstream makes itself are joined and repaired by
`call_assembly`, under the names of `sent_names`.

Laws:

* What was yielded is never contradicted, and nothing that the model wrote is lost: it is run, shown or asked
  about.
* A reply is read the same way in whichever pieces it arrives.
* This room asks no model: whether to ask again is decided in `answering`.

Start at `reply_reader.ReplyReader`.
"""

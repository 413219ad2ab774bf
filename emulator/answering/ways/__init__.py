"""The ways in which a model is asked for calls, and its reply is read. `Way` is their interface; nothing
else tests which way it is.

* `Way`: the model reads stubs of the functions, with our words, the operator's or those of its own chat
  template; it writes prose, and Python in labelled blocks.
* `JsonWay`: it writes one JSON object of words or calls, which most servers constrain to a schema (`schema`).
* `TinyWay`: it reads examples, and the few functions that the request may be about (`shortlist`); it writes
  such an object, with values copied from the request (`copying`), or prose.

`choice.way_of` chooses. An upstream that calls tools itself is `answering.native`.
"""

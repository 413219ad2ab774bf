"""Tool programs: validate a model's program, run it as far as known results allow, and resume it with new
results.

Input: a program's statements, and the results received so far. Output: valid calls, or how the program
ended. Every run is a replay from the first line in a fresh engine: program + recorded calls -> new calls.
Streaming statement by statement, repair, another engine, and resuming in a later request are all this one
operation.

Three laws (docs/programs.md explains them with examples):

* No call may depend on a value that no tool returned. An unknown result is a placeholder, and the run
  stops before an operation inspects it. The check happens at run time.
* Calls share a message only if running them in any order, or at the same time, cannot change the outcome.
* A failed result that the program has not handled, or a refusal, ends the program before its next call.

One request, in the order of its steps (start reading with `driver`):

1. `call_history` and `saved` find the suspended program, `origin` checks whose it is, `failures` recognizes
   failed results; `resume` has the states of a program over several requests. A new program is checked by
   `validate`.
2. `driver` chooses the engine, and whether results are read as text or as values. `plain_calls` need none.
3. `rewrite` makes the source that the engine runs. Its passes over the syntax tree: `top_level_return`;
   `async_code` (without ``async``) or `event_loops`; `scopes` (one name for each variable); `text_results`
   (which results are read as text); `handling` (which failures the program handles); `statements` (checks of
   placeholders, with `expressions`, `calls` and `operands`); `number_uses` (where a text is a number).
4. `attempt` runs it and answers its calls from the record; `order` is the second law, `direct_calls` the
   tools that only the model itself may call, `unhandled_failures` the third law. `held_run` is a run that
   waits for a hosted call.
5. `saved` stores a suspended program, `ended` one that has ended.

What the passes know, each in one module: `sites` which calls are of tools, `bindings` what nodes bind and to
which values, `inspections` what inspects a value, `facts` which values may be unknown, `handling` from which
calls a value comes. `placeholder` and `scalar_results` have the functions that run in the engine.
"""

"""Tool programs: validate a model's program, run it as far as known results allow, and resume it with new
results.

Input: a program's statements, and the results received so far. Output: valid calls, or how the program
ended. Every run is a replay from the first line: program + recorded calls -> new calls. Streaming statement
by statement, repair, and resuming in a later request are all this one operation.

Three laws (docs/programs.md explains them with examples):

* No call may depend on a value that no tool returned. A call without a result returns an unknown value, and
  the run ends where the program looks at it. That is a fact of the run: nothing predicts it.
* Calls share a message only if running them in any order, or at the same time, cannot change the outcome.
* After a failed call that the program has not looked at no call acts; after a refused one there is none.

The program runs in a child (`sandbox.programs`), which notes facts: what it passes, which calls belong
together, which failures it has looked at. Decisions are made here, where the child is not trusted.

One request, in the order of its steps (start reading with `driver`):

1. `basis` says whether the history still fits a suspended program, whose calls `call_history` finds;
   `failures` recognizes failed results; `resume` has the states of a program over several requests;
   `validate` checks a new one.
2. `driver`: a program of literal calls is read (`plain_calls`); any other runs (`run`), in a child that
   `open_run` keeps while the model writes on or a hosted call runs.
3. `run_calls` decides about each call: `order` is the second law, `direct_calls` the tools that only the
   model itself may call.
4. `saved` is a suspended program, `ended` one that has ended; `emulator.history` stores both.
"""

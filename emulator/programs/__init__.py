"""Tool programs: validate a model's program, run it as far as known results allow, and resume it with new
results.

Input: a program's statements, and the results received so far. Output: valid calls, or how the program
ended. Every run is a replay from the first line in a fresh engine: program + recorded calls -> new calls.
Streaming statement by statement, repair, another engine, and resuming in a later request are all this one
operation.

Two laws (docs/programs.md explains them with examples):

* No call may depend on a value that no tool returned. An unknown result is a placeholder, and the run
  stops before an operation inspects it. The check happens at run time.
* Calls share a message only if running them in any order, or at the same time, cannot change the outcome.

Where to start: `driver` chooses the engine, `attempt` is one run, `rewrite` inserts the checks, `order`
is the second law, `resume` has the states of a program over several requests.
"""

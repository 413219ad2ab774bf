"""Tool programs: validated, run as far as known results allow, gone on with when results arrive.

In come a program's statements and the results there are; out come calls, bound and valid, or how it
ended. Every run is a replay from the top in a fresh engine: program + recorded calls -> further calls.
Streaming by statement, repair, moving to another engine and resuming over turns are that one mechanism.

Two laws (docs/programs.md has them with examples):

* No call from a value that no tool returned: an unknown result is a placeholder, and the run stops before
  anything looks at it, which shows as the program runs.
* Calls leave together only where running them in any order, or at once, cannot matter.

Start at `driver` (which engine; none for `plain_calls`) and `attempt` (one run), then `placeholders` (what
may go on without a result), `resume` and `saved` (over turns).
"""

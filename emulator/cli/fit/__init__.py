"""`tool-emulator fit`: measure on the user's own server which way of calling tools suits a model.

    tasks (core/tasks.toml) x ways -> answers of the ordinary pipeline -> outcomes -> scores -> a profile

A *way* is nothing but a row of ``[[profiles]]``, so what is measured is what the written row does later.
`server` asks what the server is, `ways` lists the ways to try, `playing` answers one task in one way, and
`outcomes` appends each outcome to a file, from which an interrupted run continues. `scores` counts and
recommends, `report` prints, `profile_file` writes emulator.toml. Start at `command`.

Laws:

* All ways are asked one task before the next task begins, and scores count only tasks that each way has
  answered: a run that ends early is still fair.
* Nothing a model calls is executed: every result is the task's own.
* Outcomes of other tasks, another server or another model are never mixed.
"""

"""Text -> statements: how calls are found in a reply, and how each syntax is read into Python.

In comes text as it streams, cut anywhere; out come events (reasoning, prose, blocks) and, of each block,
Python statements. `splitter` finds the blocks, `readers` is the table of what reads them, and the name of a
tool is all that this room knows of it.

Laws:

* Sans-IO, and the same for every cut: ``feed(text)``, then ``close()``. The tests try each sample whole, by
  character and at random cuts.
* Nothing is lost: the events' ``raw`` joined is the reply. What turns out to be no program is prose again.
* Python first. Every other syntax is a row in a table (`tags`, `openings`, `readers`) that ends in the same
  statements, so nothing behind this room knows which one the model wrote in.
* Time is linear in the text, whatever the text.

Start at `splitter`, then follow one row of `readers`. A new syntax: CONTRIBUTING.md shows one from start
to end.
"""

"""Text to statements: find the calls in a reply and read each syntax into Python.

Input: the text of a reply as it streams in, in pieces of any size. Output: events (reasoning,
prose, blocks) and, for each block, Python statements. `splitter` finds the blocks; `readers` is the
table of functions that read them. Of the tools this room knows only the names.

Laws:

* Sans-IO: ``feed(text)``, then ``close()``. The result does not depend on where the text is cut.
  The tests feed every sample whole, character by character, and in random pieces.
* Nothing is lost: the ``raw`` of all events, joined, is the reply. A block that is not a program
  becomes prose again.
* Python first. Every other syntax is a row in a table (`tags`, `openings`, `readers`) and ends in
  the same statements, so the rooms above do not know which syntax the model used.
* Time is linear in the length of the text, for any text.

Start at `splitter`, then follow one row of `readers`. CONTRIBUTING.md shows how to add a syntax.
"""

"""Grammars that hold a model's calls to the tools: schemas in, GBNF out.

Two laws. Whatever a grammar admits as a call is valid by the tool's schema, as far as a context-free grammar
can say what the schema says; docs/upstreams.md lists what it cannot. And it may admit less than the schema
does (arguments in the schema's order, bounded depths), but always something, if there is anything.

Start at `calls.gbnf`, which puts a grammar together, and `values.Values`, which reads a schema; `numbers` and
`strings` write ranges and patterns, `words` is what a reply may be beside calls, and `fields` knows which
upstream takes a grammar where. Validation in the host decides all the same.
"""

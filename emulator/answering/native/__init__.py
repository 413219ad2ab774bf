"""Answers of upstreams that call tools themselves: passed on unchanged, repaired where clients could not
use them.

The request is sent as the client wrote it, in an order that servers accept (`conversation`), and the reply's
chunks are passed on untouched. Only calls are buffered until they are complete; a call passes in its original
pieces if its tool is known and its arguments are valid. `call_assembly` joins the fragments of calls and
repairs each call, `turn` reads one reply, `answer` asks again if nothing else helps, `probe` finds out
whether an upstream calls tools.

Start at `answer`.
"""

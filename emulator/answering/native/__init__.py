"""Answers of upstreams that can call tools themselves: passed on as they are, with a net below them.

The request goes up as it came, and the reply's chunks come back untouched, but for what clients cannot use:
each call is held until it is whole, and leaves as it was written where its tool is known and its arguments
are valid. `calls` puts the pieces of calls together and mends what one reading can mend; `turn` reads one
reply; `answer` asks again where nothing else helps. `probe` finds out whether an upstream can call tools.

Start at `answer`.
"""

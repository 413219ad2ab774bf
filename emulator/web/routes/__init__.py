"""One module for each API: a request in, JSON or a stream of events out."""

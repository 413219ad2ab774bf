"""`tool-emulator run` (`run`) starts a coding agent of the table in `agents`, with a proxy of its own."""

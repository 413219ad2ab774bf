"""The Chat Completions front, over HTTP."""

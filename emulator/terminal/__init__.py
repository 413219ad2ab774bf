"""`tool-emulator chat`: a conversation at the terminal, with tools that run here.

A client like any other: it knows the proxy by its URL alone, speaks to it through the official SDK, and
imports nothing of the rooms that serve. `conversation` asks, shows each call, runs it when the user agrees
and goes on until the model answers in words; `toolboxes` are where the tools come from (a Python file, an MCP
server); `screen` is what is seen, with every character that a terminal would obey made visible. Start with
`command`. Needs the extra ``chat``.
"""

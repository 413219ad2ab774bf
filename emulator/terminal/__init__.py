"""`tool-emulator chat`: a conversation in the terminal, with tools that run on this machine.

It is an ordinary client: it knows only the proxy's URL and uses the official SDK. Of the rooms that serve it
imports only `hosted`, whose sessions with MCP servers it shares. Start at `command`. `conversation` sends
questions, shows each call, runs it if the user agrees, and repeats until the model answers in words.
`toolboxes` provide the tools (from a Python file or an MCP server). `screen` prints, with terminal control
characters made visible. Needs the extra ``chat``.

`tool-emulator run` (`run`) starts a coding agent of the table in `agents`, with a proxy of its own.
"""

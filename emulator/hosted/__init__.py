"""Tools that the proxy runs itself, and the servers that they come from.

A `HostedTool` is one function that the model may call and the proxy runs. Its calls never leave as
tool calls: `emulator.answering.hosted_calls` runs them and continues the answer with their results. This room
knows how to find and run tools, and nothing of programs, prompts or wire formats. Only this room and the
terminal know `mcp`.
"""

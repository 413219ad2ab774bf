"""The Anthropic Messages front: answer events -> content blocks and stream events of Anthropic's API.

A request becomes a chat completion request (`request`, `blocks`, `tools`), which is what the core
answers; the answer's events become content blocks (`writer`). `front.answer` is the door. Knows nothing
of Flask, of chunks or of OpenAI's items. The shapes are those of Anthropic's API reference ("Messages",
"Streaming messages", "Errors") and of the types of its Python SDK, which the tests drive.
"""

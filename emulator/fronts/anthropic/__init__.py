"""The Anthropic Messages front: answer events -> content blocks and stream events of Anthropic's API.

`request`, `blocks` and `tools` turn a request into a chat completion request, which the core answers;
`writer` turns the answer's events into those of a stream, and `message` folds these into the whole message.
Start at `front.answer`. Knows nothing of Flask, of chunks or of OpenAI's items. The shapes follow
Anthropic's API reference ("Messages", "Streaming messages", "Errors") and the types of its Python SDK, which
the tests use.
"""

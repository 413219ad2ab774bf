"""The Chat Completions front: answer events -> ``chat.completion.chunk`` -> one ``chat.completion``.

`front.complete` is the door; `chunks` writes the wire, and `chunks.collect` folds it, so a streamed
answer and one that is not cannot disagree. `code_as_text` tells of the code interpreter in a chat, which
has no room of its own for code. Knows nothing of Flask or of the Responses API.
"""

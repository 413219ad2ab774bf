"""The Chat Completions front: answer events -> ``chat.completion.chunk`` -> one ``chat.completion``.

Start at `front.complete`. `chunks` writes the wire format, and `chunks.collect` folds it into a plain answer,
so streamed and plain answers cannot disagree. `code_as_text` shows the code interpreter, because chat
completions have no field for code. Knows nothing of Flask or of the Responses API.
"""

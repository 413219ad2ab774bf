"""The Chat Completions front: answer events -> ``chat.completion.chunk`` -> one ``chat.completion``."""

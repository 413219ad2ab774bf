"""The model's side: the client that asks it, server-sent events, the embedded model."""

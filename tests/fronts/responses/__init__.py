"""The Responses front, over HTTP."""

"""The Anthropic Messages front, over HTTP and through the official SDK."""

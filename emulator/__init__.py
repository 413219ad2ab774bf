"""Tool calling for models that lack it, behind OpenAI's HTTP API."""

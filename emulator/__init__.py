"""Tool calling for models that lack it, behind OpenAI's HTTP API."""

__version__ = "1.0.0"

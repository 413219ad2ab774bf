"""One answer: prompts, guards, very small models."""

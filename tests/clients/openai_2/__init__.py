"""Clients that need an `openai` older than 3 (requirements-clients-old.txt)."""

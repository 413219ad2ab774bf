"""Clients that go with `openai` 3 or need none (requirements-clients.txt)."""

"""Coding agents as they come, against the proxy with a scripted model: `make test-agents`."""

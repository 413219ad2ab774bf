"""Monty, the engine in this process."""

"""Cells in containers, over HTTP."""

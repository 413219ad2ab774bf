"""Engines, kernels and what they stop."""

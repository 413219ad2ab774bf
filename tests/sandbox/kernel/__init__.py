"""Kernels: their gateway, and what a program does to its own."""

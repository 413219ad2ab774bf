"""Servers that could replace gunicorn's threads: `make bench-fronts` -> benchmarks/fronts/README.md."""

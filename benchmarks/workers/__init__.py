"""How much load a core, a second worker and a GiB can serve: `make bench-workers` -> results.md."""

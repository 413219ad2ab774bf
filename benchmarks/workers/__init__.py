"""What a core, a second worker and a GiB hold: `make bench-workers` -> docs/scaling.md."""

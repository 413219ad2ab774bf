"""What could carry bytes in place of gunicorn's threads: `make bench-fronts` -> docs/performance.md."""

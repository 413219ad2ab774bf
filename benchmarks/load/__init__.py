"""What the proxy adds to a request, measured beside others: `make bench` -> docs/performance.md."""

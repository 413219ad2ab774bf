"""The inspector in a real browser: `make test-browser`. It needs Chromium, so `make test` leaves it out."""

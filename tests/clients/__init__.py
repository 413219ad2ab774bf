"""Other people's clients against the running proxy. Run by `make test-clients`, not by `make test`."""

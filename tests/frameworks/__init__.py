"""Agent frameworks as they come, each in an environment of its own: `make test-frameworks`."""

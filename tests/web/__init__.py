"""HTTP itself, and the server process."""

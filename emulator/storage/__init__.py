"""What outlives a request: bytes, keys and values, files, containers."""

"""Tools that the proxy runs itself."""

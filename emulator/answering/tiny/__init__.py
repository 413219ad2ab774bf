"""What very small models need: examples, few tools, and values copied from the request."""

"""What very small models need: examples, few tools, and a grammar that copies."""

"""Tool schemas: how they are read, shown to a model, and enforced on its calls."""

"""Tool schemas: read, shown, bound, judged."""

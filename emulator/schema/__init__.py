"""How tool schemas are read, shown and enforced: the parts of `tools.py`."""

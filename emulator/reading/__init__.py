"""How calls are found in a reply and read into Python: the parts of `extract.py` and `readers.py`."""

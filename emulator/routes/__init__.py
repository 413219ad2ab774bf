"""The HTTP fronts: one module for each API. Only these and `app.py` know Flask."""

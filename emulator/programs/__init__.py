"""Tool programs: validated, run as far as known results allow, taken up again when results arrive."""

"""Programs over turns."""

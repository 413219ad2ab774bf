"""`tool-emulator run`."""

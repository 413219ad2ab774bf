"""`tool-emulator fit`."""

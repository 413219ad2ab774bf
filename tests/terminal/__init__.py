"""`tool-emulator chat`."""

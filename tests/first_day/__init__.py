"""What a new user does on the first day, through the real command line: real processes on loopback."""

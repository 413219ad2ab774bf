"""Reading replies: splitter, readers, the ladder."""

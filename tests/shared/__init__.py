"""State that several processes share."""

"""What a model means to do, and what it only shows."""

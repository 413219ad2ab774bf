"""Programs in the children of the program server."""

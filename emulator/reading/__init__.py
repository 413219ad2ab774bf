"""Text -> statements: how calls are found in a reply, and how each syntax is read into Python."""

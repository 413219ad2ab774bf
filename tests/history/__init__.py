"""What the model saw of a conversation: recalled, appended, and when it no longer counts."""

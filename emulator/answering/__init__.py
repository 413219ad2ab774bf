"""One answer: ask the model, read its reply, judge it, ask again. Out come answer events for any front."""

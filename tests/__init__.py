"""Tests. A package, so that a helper has one name: `from tests.scripted import Reply`."""

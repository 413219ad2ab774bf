"""Tests. A package, so that a helper has one name: `from tests.support.scripted import Reply`."""

"""Tests of the server process."""

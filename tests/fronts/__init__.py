"""Tests of the fronts."""

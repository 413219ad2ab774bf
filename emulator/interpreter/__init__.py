"""Cells in containers: kernels that keep their state, files, approvals."""

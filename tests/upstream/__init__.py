"""What answers upstream."""

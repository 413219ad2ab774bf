"""What deploy/ says to Compose, Kubernetes and systemd."""

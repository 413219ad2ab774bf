"""What encloses a kernel: bubblewrap, Docker, seccomp, control groups."""

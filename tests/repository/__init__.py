"""What the files of the repository say of one another, and the wheel made of them: `make lint`."""

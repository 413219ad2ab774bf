"""The images that the Dockerfiles make, before a Docker engine of their own."""

"""The project's own promises: documents, examples, benchmarks."""

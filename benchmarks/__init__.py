"""Benchmarks against TensorFlow and against the limit of the machine: `python -m benchmarks`."""

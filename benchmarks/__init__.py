"""Our speed beside TensorFlow's and beside the limit, in one run: `python -m benchmarks`."""

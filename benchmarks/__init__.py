"""One script per question about speed or size; `python -m benchmarks` runs them."""

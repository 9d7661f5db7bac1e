"""The benchmarks of `hack/bench`: one module each, what they measure with, and the table."""

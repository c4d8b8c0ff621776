"""What runs cost, beside plain hand-written jobs that do the same work: ``python -m benchmarks --help``."""

"""Data makers of the example pipelines: realistic, seeded, any amount, faults included, with the truth about them."""

"""tidegate: streaming on a schedule, exactly once, checked before anyone reads it."""

__version__ = "0.1.0"

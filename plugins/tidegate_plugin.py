"""Registers tidegate with Airflow; the body is in the package."""

from tidegate.airflow.plugin import TidegatePlugin  # noqa: F401

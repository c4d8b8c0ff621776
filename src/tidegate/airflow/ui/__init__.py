"""The pages of tidegate in Airflow: HTML that is complete without script; the bundle is built from ``ui/``."""

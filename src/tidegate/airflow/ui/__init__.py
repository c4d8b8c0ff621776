"""The pages of tidegate in Airflow: HTML made here, complete without script; the bundle is built from ``ui/``."""

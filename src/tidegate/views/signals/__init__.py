"""Signals for other systems, as plain values: metrics, alerts, lineage, the extra of an asset event.

No module here imports Airflow: :mod:`tidegate.airflow` sends the values.
"""

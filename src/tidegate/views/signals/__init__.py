"""What leaves for other systems, as plain values: metrics, alerts, lineage, the extra of an asset event.

No module here knows Airflow: :mod:`tidegate.airflow` sends what these make.
"""

"""Development tools of this repository: setup, jars, a local broker, a local Airflow, the demo. Not in the package."""

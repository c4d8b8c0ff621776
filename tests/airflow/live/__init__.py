"""Tests with a real scheduler, API server and database. A package, so that one Airflow serves all of its files and is
stopped before other tests."""

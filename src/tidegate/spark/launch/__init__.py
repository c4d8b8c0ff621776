"""The script that spark-submit starts for a project without a ``jobs/tidegate_job.py``.

A folder with nothing else in it: Spark puts the application's folder on Python's path, where any other module would
hide another one of the same name.
"""

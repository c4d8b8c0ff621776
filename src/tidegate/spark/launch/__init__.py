"""What spark-submit starts where a project has no ``jobs/tidegate_job.py`` of its own.

A folder with nothing else in it: Spark puts the application's folder on Python's path, where any other module would
stand before one of the same name.
"""

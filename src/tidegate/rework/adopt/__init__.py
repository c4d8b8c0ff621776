"""Adopt an existing parquet or Delta table, and the checkpoint of a plain Spark job.

Reads the footers of the files and no rows; starts no JVM.
"""

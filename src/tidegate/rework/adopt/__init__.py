"""Taking over what people already have: a parquet or Delta table, and the checkpoint of a plain Spark job.

Light: the footers of the files are read and no row of them; no JVM.
"""

"""What the pages in Airflow show, as values: made from reports, verdicts, tables and state, without Airflow or a JVM.

A module for each page (:mod:`pipelines`, :mod:`pipeline`, :mod:`run`) and for what they share. Each reads at most what
its page shows. What cannot be read is a value that says so, and is not raised: a page stays up.
"""

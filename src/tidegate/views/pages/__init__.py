"""The content of the pages in Airflow, as values from reports, verdicts, tables and state, without Airflow or a JVM.

There is a module for each page (:mod:`pipelines`, :mod:`pipeline`, :mod:`run`) and for what they share. Each reads only
what its page shows. An error while reading becomes a value, and is not raised, so that the page is shown.
"""

"""Airflow's home is set before anything imports airflow: no test reads or writes the user's own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="tidegate-airflow-tests-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"

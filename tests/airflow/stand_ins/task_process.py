"""A task process like Airflow's: runs the driver hook, SIGTERM calls ``on_kill``, bound to its parent.

Arguments: ``REPORT SECONDS EXIT_CODE STUBBORN``. The last line on stdout is a JSON object with how it ended.
"""

import json
import logging
import os
import signal
import sys
import time
from types import FrameType

from tidegate.airflow.hook import DriverHook
from tidegate.core.errors import TidegateError
from tidegate.core.process.tree import die_with_parent
from tidegate.spark.driver.submit import SubmitPlan

report, seconds, exit_code, stubborn = sys.argv[1:]
die_with_parent()
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="LOG %(message)s")
hook = DriverHook("gate_local", "tidegate-gate")
ending: dict[str, object] = {}


def on_term(signum: int, frame: FrameType | None) -> None:
    """As Airflow's task runner does."""
    began = time.monotonic()
    hook.on_kill()
    ending["kill_seconds"] = time.monotonic() - began


signal.signal(signal.SIGTERM, on_term)
plan = SubmitPlan(
    application=os.path.join(os.path.dirname(__file__), "sleeping_driver.py"),
    application_args=[seconds, exit_code, stubborn],
    conf={
        "spark.gate.password": "canary-in-conf",
        "spark.gate.text": "a\\b=c:d é\t# ! end",
        "spark.ui.enabled": "false",
    },
    jars=[],
    env_vars={
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "GATE_REPORT": report,
        "GATE_PASSWORD": "canary-in-env",
    },
    driver_memory="512m",
)
try:
    ending["exit_code"] = hook.run(plan)
except TidegateError as error:
    ending["error"] = error.code
print(json.dumps(ending), flush=True)

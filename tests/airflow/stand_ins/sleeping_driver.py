"""A Spark application that tells what reached it, starts Python workers, and then will not stop by itself.

Arguments: ``SECONDS EXIT_CODE STUBBORN(yes|no)``. Stubborn: driver and workers ignore SIGTERM.
"""

import json
import os
import signal
import sys
import time

from pyspark.sql import SparkSession

seconds, exit_code, stubborn = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "yes"

if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
spark = SparkSession.builder.getOrCreate()
print("TIDEGATE " + json.dumps({"event": "progress", "batch_id": 3, "rows": 12000}), flush=True)
print("a line with \x1b[31ma colour", flush=True)
print("a line that is not UTF-8: ", end="", flush=True)
sys.stdout.buffer.write(b"\xff\n")
sys.stdout.flush()
reached = {key: spark.conf.get(key) for key in ("spark.gate.password", "spark.gate.text", "spark.ui.enabled")}
with open(os.environ["GATE_REPORT"], "w") as file:
    json.dump({"conf": reached, "password": os.environ.get("GATE_PASSWORD"), "python": sys.executable}, file)


def sleep_in_worker(rows):
    """Keep a Python worker busy."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)
    yield sum(rows)


spark.sparkContext.parallelize(range(2), 2).mapPartitions(sleep_in_worker).count()
sys.exit(exit_code)

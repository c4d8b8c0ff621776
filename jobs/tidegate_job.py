"""The one spark-submit application of the project: ``spark-submit ... jobs/tidegate_job.py ORDER_FILE``.

``tidegate run`` and the DAGs start it; the order file, written by the step, says what to do.
"""

import sys

from tidegate.spark.application import main

if __name__ == "__main__":
    sys.exit(main())

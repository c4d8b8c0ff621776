"""The spark-submit application: ``spark-submit ... tidegate_job.py ORDER_FILE``.

``tidegate run`` and the DAGs start it; the order file, written by the step, says what to do. A project that has a
``jobs/tidegate_job.py`` is started through that one.
"""

import sys

from tidegate.spark.application import main

if __name__ == "__main__":
    sys.exit(main())

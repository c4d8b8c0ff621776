"""The process that Spark's Python workers are forked from: started as ``python -m tidegate.spark.session.daemon``.

Spark puts its zipped Python code first on the path, of which each start would compile half again (0.45 CPU-s); the
installed package is the same code, compiled. What the workers need is imported once, before they are forked.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Serve Spark's requests for workers, as pyspark's own daemon does."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", "-src.zip"))]
    import pyspark.worker
    from pyspark import daemon

    import tidegate.sources.readers.worker

    del pyspark.worker, tidegate.sources.readers.worker
    daemon.manager()


if __name__ == "__main__":
    main()

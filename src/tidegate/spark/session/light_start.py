"""The start of Python in the driver and in its workers' parent, without what a run does not need.

Measured on pyspark 4.2.0: together these save 0.9 CPU-seconds a run, a sixth of a small one. Started as ``python -m``
it is the process that Spark's Python workers are forked from: what they need is imported once, before they are forked.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

_TEST_ONLY = ("pandas", "pyarrow", "grpc", "google")


def start_light() -> None:
    """Prepare a driver started by spark-submit. Call it before the first import of pyspark."""
    _skip_zipped_pyspark()
    _import_pyspark_testing_without_pandas()


def _skip_zipped_pyspark() -> None:
    kept = _without_zips()
    if "pyspark" not in sys.modules and all(PathFinder.find_spec(name, kept) for name in ("pyspark", "py4j")):
        sys.path[:] = kept


def _without_zips() -> list[str]:
    # spark-submit puts pyspark.zip and py4j's zip first on the path. They hold no compiled files, so every start would
    # compile half of pyspark again: 0.45 CPU-s. The installed package next to them is the same code, compiled.
    return [entry for entry in sys.path if not entry.endswith(("pyspark.zip", "-src.zip"))]


def _import_pyspark_testing_without_pandas() -> None:
    # functions.lit() and every list that goes to the JVM ask pyspark.testing.utils whether numpy is installed, and that
    # module imports pandas, pyarrow and grpc to note whether they are: 0.4 CPU-s. They are hidden from this one import
    # only; a transform that uses pandas still finds it.
    if "pyspark.testing.utils" in sys.modules:
        return
    hidden = [name for name in _TEST_ONLY if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import pyspark.testing.utils  # noqa: F401
    except ImportError:
        pass  # another pyspark, laid out differently: only the saving is lost
    finally:
        for name in hidden:
            if sys.modules.get(name, ...) is None:
                del sys.modules[name]


def main() -> None:
    """Serve Spark's requests for workers, as pyspark's own daemon does."""
    sys.path[:] = _without_zips()
    import pyspark.worker
    from pyspark import daemon

    import tidegate.sources.readers.worker

    del pyspark.worker, tidegate.sources.readers.worker
    daemon.manager()


if __name__ == "__main__":
    main()

"""The class archive of the driver's JVM, with the real Java and Spark."""

from __future__ import annotations

from tidegate.spark.driver.jvm import jvm_options
from tidegate.spark.driver.jvm_archive import ensure_archive, locate_archive


def test_it_is_built() -> None:
    """In the cache of all tests, which then start Spark with it: 35 CPU-seconds, once for an environment. The build
    itself proves that a JVM takes it."""
    said: list[str] = []
    place = locate_archive()
    assert place is not None
    place.with_suffix(".failed").unlink(missing_ok=True)  # of another time
    archive = ensure_archive(said.append)
    assert archive is not None, said
    assert any(str(archive) in option for option in jvm_options(0, archive))

"""What every unit test has: no JVM is started, so none is prepared for either."""

from __future__ import annotations

import pytest

from tidegate.spark.driver.jvm_archive import SWITCH


@pytest.fixture(autouse=True)
def no_class_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan a spark-submit builds the archive of its classes where there is none: half a minute of a JVM."""
    monkeypatch.setenv(SWITCH, "off")

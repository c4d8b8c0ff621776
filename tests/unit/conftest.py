"""What every unit test has: no JVM is started, so none is prepared for either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegate.driver.jvm_archive import SWITCH


@pytest.fixture(autouse=True, scope="session")
def no_class_archive() -> Iterator[None]:
    """To plan a spark-submit builds the archive of its classes where there is none: half a minute of a JVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off")
        yield

"""The locale that the JVM takes the encoding of file names from."""

from __future__ import annotations

import pytest

from tidegate.spark.driver.submit import utf8_locale


@pytest.mark.parametrize(
    ("own", "is_enough"),
    [
        ({}, False),
        ({"LC_ALL": "C"}, False),
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "xx_XX.UTF-8"}, False),
        ({"LANG": "xx_XX.UTF-8", "LC_CTYPE": "C.UTF-8"}, False),
    ],
)
def test_a_locale_that_is_not_installed_is_none(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], is_enough: bool
) -> None:
    for key in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(key, raising=False)
    for key, value in own.items():
        monkeypatch.setenv(key, value)
    assert utf8_locale() == ({} if is_enough else {"LC_ALL": "C.UTF-8"})

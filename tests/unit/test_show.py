"""What commands print of causes."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.cli.show import show_causes


def _row(detail: str | None, example: str | None) -> dict[str, Any]:
    at = "2026-03-09T12:00:00.000000Z"
    return {
        "records": 3,
        "reason": "malformed",
        "detail": detail,
        "run_id": "r1",
        "source": "orders",
        "first_at": at,
        "last_at": at,
        "example": example,
    }


@pytest.mark.parametrize(
    ("detail", "option"),
    [
        ("day: not a DATE", "dateFormat"),
        ("n: not an INT; day: not a DATE", "dateFormat"),
        ("at: not a TIMESTAMP", "timestampFormat"),
        ("not valid UTF-8", "encoding"),
        ("n: not an INT", None),
        (None, None),
    ],
)
def test_the_option_that_may_be_missing_is_named(
    capsys: pytest.CaptureFixture[str], detail: str | None, option: str | None
) -> None:
    show_causes([_row(detail, "09/03/2026")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "  like: 09/03/2026"
    assert [line for line in lines[3:] if f"options: {{{option}" in line] == lines[3:]
    assert len(lines) == 3 + (option is not None)


def test_an_example_without_a_visible_character_is_shown_as_python_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_causes([_row("not a JSON object", " \0")])
    assert "  like: ' \\x00'" in capsys.readouterr().out

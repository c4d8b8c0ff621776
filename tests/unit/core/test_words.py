"""Lists in sentences."""

from __future__ import annotations

import pytest

from tidegate.core.words import list_first, shorten


@pytest.mark.parametrize(
    ("count", "between", "told"),
    [
        (0, ", ", ""),
        (1, ", ", "a"),
        (2, ", ", "a, a"),
        (3, ", ", "a, a and 1 more"),
        (3, "; ", "a; a; and 1 more"),
        (1_002, ", ", "a, a and 1,000 more"),
    ],
)
def test_the_first_of_some_texts(count: int, between: str, told: str) -> None:
    assert list_first(["a"] * count, 2, between) == told


def test_a_long_text_keeps_its_end() -> None:
    detail = f"{'incorrect header check ' * 30}; the file is kept as unreadable/00000000.gz"
    assert shorten(detail, len(detail)) == detail
    short = shorten(detail, 150)
    assert len(short) == 150 and short.startswith("incorrect header check") and " ... " in short
    assert short.endswith("; the file is kept as unreadable/00000000.gz")

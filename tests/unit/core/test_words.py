"""Lists in sentences."""

from __future__ import annotations

import pytest

from tidegate.core.words import list_first


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

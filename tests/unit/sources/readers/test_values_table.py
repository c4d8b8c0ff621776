"""Hundreds of values that are hard to read: each is in the table exactly as it was written, or malformed with its path.

What is exact is judged by Python's own ``json`` and ``decimal``.
"""

from __future__ import annotations

import pytest

from tests.support.judged import REFUSED, agrees, held, judge
from tools.values_table import PAGE, Case, csv_cases, json_cases, parse, render


@pytest.mark.parametrize("cases", [json_cases(), csv_cases()], ids=["json", "csv"])
def test_a_value_is_held_exactly_or_malformed(cases: list[Case]) -> None:
    wrong = []
    for case, row in zip(cases, parse(cases), strict=True):
        want = judge(case)
        if not row["_malformed"]:
            if not agrees(want, held(case, row)):
                wrong.append((case, "published", held(case, row), "instead of", want))
        elif not row["_detail"].startswith((f"{case.path}: ", f"{case.column}: ")):
            wrong.append((case, "without its path", row["_detail"]))
        elif want is not REFUSED:
            wrong.append((case, "refused though it can be held", row["_detail"]))
    assert not wrong, "\n".join(map(str, wrong))
    assert len(cases) >= 150


def test_the_page_is_what_was_tried() -> None:
    assert PAGE.read_text(encoding="utf-8") == render()

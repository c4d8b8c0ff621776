"""What the state was made for, compared across versions of Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.errors import DisagreementError
from tidegate.state.birth import Birth, check_state

SUM = [{"operator": "Aggregate", "keys": ["words.word"], "values": ["sum(words.n)"]}]
SPELLED_ANEW = [{"operator": "Aggregate", "keys": ["words.word"], "values": ["sum(words.n, LEGACY)"]}]
DEDUPLICATED = [{"operator": "Deduplicate", "keys": ["words.word"], "values": []}]


def check(state: list[dict[str, Any]], spark: str, transform: str) -> None:
    birth = Birth("q", "", {}, {}, state=SUM, transform="as it was", state_spark="4.2.0")
    check_state(birth, "flow", state, spark=spark, transform=transform)


def test_another_spark_may_spell_the_same_text_otherwise() -> None:
    check(SUM, "4.2.0", "edited")
    check(SPELLED_ANEW, "4.3.0", "as it was")


@pytest.mark.parametrize(
    ("state", "spark", "transform", "says"),
    [
        (SPELLED_ANEW, "4.2.0", "as it was", "the values of its Aggregate"),
        (SPELLED_ANEW, "4.3.0", "edited", r"Spark was changed as well \(4.2.0 -> 4.3.0\): take the transform's change"),
        (SPELLED_ANEW, "4.3.0", "", "the values of its Aggregate"),
        (DEDUPLICATED, "4.3.0", "as it was", "this is now Deduplicate"),
    ],
)
def test_what_may_be_another_meaning_is_refused(
    state: list[dict[str, Any]], spark: str, transform: str, says: str
) -> None:
    with pytest.raises(DisagreementError, match=says):
        check(state, spark, transform)

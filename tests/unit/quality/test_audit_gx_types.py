"""The committed table of what Great Expectations knows is what the installed library knows."""

from __future__ import annotations

import pytest

from tidegate.quality.gx_judge import import_gx
from tidegate.quality.gx_types import EXPECTATION_TYPES, QUARANTINE_TYPES, UNUSABLE_TYPES
from tidegate.quality.row_rules import BUILDERS


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    import_gx()


def test_every_type_of_the_library_is_in_the_table() -> None:
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    assert set(EXPECTATION_TYPES) == set(list_registered_expectation_implementations())


def test_kwargs_and_levels_are_those_of_the_library() -> None:
    from great_expectations.expectations import expectation as base
    from great_expectations.expectations.registry import get_expectation_impl

    common = {*base.Expectation.__fields__, "batch_id", "library_metadata"}
    rows = (base.ColumnMapExpectation, base.ColumnPairMapExpectation, base.MulticolumnMapExpectation)
    for name, known in EXPECTATION_TYPES.items():
        implementation = get_expectation_impl(name)
        fields = {key: field for key, field in implementation.__fields__.items() if key not in common}
        assert set(known.kwargs) == set(fields), name
        assert set(known.required_kwargs) == {key for key, field in fields.items() if field.required}, name
        level = "row" if issubclass(implementation, rows) else None
        level = level or ("column" if issubclass(implementation, base.ColumnAggregateExpectation) else "table")
        assert known.level == level, name


def test_quarantine_types_are_row_level_and_have_sql() -> None:
    assert set(BUILDERS) == QUARANTINE_TYPES
    assert all(EXPECTATION_TYPES[name].level == "row" for name in QUARANTINE_TYPES)
    assert not QUARANTINE_TYPES & set(UNUSABLE_TYPES)
    assert set(UNUSABLE_TYPES) <= set(EXPECTATION_TYPES)

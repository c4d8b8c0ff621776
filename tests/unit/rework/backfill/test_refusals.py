"""Pipelines of which no part, or not even the whole, can be rebuilt by a backfill or refresh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kept import Kept
from tidegate.core.errors import UsageError
from tidegate.rework.backfill.command import preview_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.state.birth import read_birth, replace_birth


def test_a_refused_refresh_names_the_way_that_makes_a_new_table(tmp_path: Path) -> None:
    kept = Kept(tmp_path, partition_by=["city"], mode="update", keys=["id", "city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}])
    birth = read_birth(kept.paths)
    assert birth is not None
    replace_birth(kept.paths, replace(birth, state=[]))
    for wanted, code in ((None, "REFRESH_NOT_POSSIBLE"), (Wanted(partitions=("city=Oslo",)), "BACKFILL_ONLY_WHOLE")):
        with pytest.raises(UsageError) as refused:
            preview_backfill(kept.project, "orders", wanted)
        assert refused.value.code == code and "`tidegate repair orders --rebuild`" in str(refused.value.fix)

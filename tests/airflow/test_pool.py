"""The pool's listener on a database of its own: made once, left alone after that, and nothing in a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.pool import Pool
from sqlalchemy import Connection, Engine, create_engine, event, select

from tidegate.airflow import pool
from tidegate.spec.models import AirflowSpec

WANTED = AirflowSpec(pool="drivers", slots=3)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A database with Airflow's table of pools and nothing else."""
    made = create_engine(f"sqlite:///{tmp_path / 'airflow.db'}", connect_args={"timeout": 5})
    Pool.__table__.create(made)  # type: ignore[attr-defined]
    yield made
    made.dispose()


def read_pools(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(Pool.pool, Pool.slots, Pool.include_deferred))]


def test_made_once_and_then_left_as_a_person_set_it(engine: Engine) -> None:
    with engine.begin() as connection:
        assert pool._ensure_pool(connection, WANTED) == 3
    assert read_pools(engine) == [("drivers", 3, False)]
    with engine.begin() as connection:
        connection.execute(Pool.__table__.update().values(slots=9))  # type: ignore[attr-defined]
        assert pool._ensure_pool(connection, WANTED) == 9
    assert read_pools(engine) == [("drivers", 9, False)]


def test_another_scheduler_that_is_quicker_does_no_harm(engine: Engine) -> None:
    """It makes the pool between our look and our insert; what else is in our transaction is kept."""
    table = Pool.__table__
    values = {"pool": "drivers", "slots": 7, "include_deferred": False}

    with engine.begin() as connection:
        connection.execute(table.insert().values(**{**values, "pool": "before"}))  # type: ignore[attr-defined]

        def come_first(ours: Connection, *_: Any) -> None:
            ours.execute(table.insert().values(**values))  # type: ignore[attr-defined]

        event.listen(engine, "savepoint", come_first, once=True)
        assert pool._ensure_pool(connection, WANTED) == 3
    assert sorted(read_pools(engine)) == [("before", 7, False), ("drivers", 7, False)]


def test_a_task_that_starts_touches_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_read_settings", lambda: pytest.fail("the project was read for the pool"))
    pool.on_starting(component=object())


def test_a_project_that_cannot_be_read_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tidegate.yaml").write_text("airflow: {slotz: 1}\n")
    monkeypatch.setattr(pool, "find_served_project", lambda: tmp_path)
    assert pool._read_settings() is None
    assert "no pool is created" in caplog.text and "slotz" in caplog.text
    (tmp_path / "tidegate.yaml").write_text("airflow: {pool: null}\n")
    assert pool._read_settings() is None
    (tmp_path / "tidegate.yaml").write_text("airflow: {slots: 6}\n")
    assert pool._read_settings() == AirflowSpec(slots=6)

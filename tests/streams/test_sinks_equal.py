"""The foreach_batch example of the docs: a database has exactly the table's rows, however these were replaced."""

from __future__ import annotations

import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.model.beside import D1, done
from tests.model.conftest import folder, new_world
from tests.model.world import Make
from tests.support.mirrors import NAMES, as_table, feed, read_table, write_code
from tests.support.page_code import SINKS, read_code
from tidegate.spark.delivery.job import ForeachBatchFeeder
from tidegate.spec.models import ForeachBatchSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["folder", "new_world"]


def test_a_database_that_a_function_feeds(spark: SparkSession, new_world: Make, tmp_path: Path) -> None:
    world, database = new_world("files"), tmp_path / "prices.db"
    write_code(world, as_table(read_code(SINKS, ".jdbc("), database).replace('"price"', '"kind"'))
    sink = ForeachBatchSink(type="foreach_batch", function="sinks.py:write")
    feed_it = partial(feed, world, sink, lambda schema: ForeachBatchFeeder(sink, world.paths, schema, spark))

    def check(what: str) -> None:
        feed_it()
        with sqlite3.connect(database) as connection:
            found: Counter[Any] = Counter(connection.execute(f"SELECT {NAMES} FROM prices").fetchall())
        assert found == read_table(world), f"after {what}"

    feed_it()  # as the first run does
    world.offer(0, ["good", "good"])
    world.offer(1, ["good"])
    done(world.run("r1"))
    check("a run")
    done(world.backfill("b1", D1, D1))
    world.offer(0, ["good"])
    done(world.run("r2"))
    check("a backfill and a run")
    done(world.rollback(0, "leave-out"))
    check("a rollback")
    done(world.reset(from_beginning=True))
    done(world.run("r3"))
    check("a reset")
    refresh = world.refresh("f1")
    done(refresh)
    check("a refresh")

"""The transform that ``tidegate new --from`` writes, run by Spark on rows with names that a table cannot have."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import functions as F

from tidegate.cli.scaffold.plain_names import write_renames
from tidegate.spec.ddl import parse_ddl
from tidegate.table.schema import normalise_schema


def test_renamed_rows_are_the_same_rows_and_fit_a_table(spark: Any) -> None:
    schema = "`Order No` BIGINT, `ship.to` STRING, `in side` STRUCT<`a b`: STRING, c: ARRAY<STRUCT<`d=`: INT>>>, "
    schema += "m MAP<STRING, STRUCT<`e f`: BIGINT, `E,F`: BIGINT>>, `a``b` INT"
    text = write_renames("orders", parse_ddl(schema))
    assert text is not None
    scope: dict[str, Any] = {}
    exec(compile(text, "transform.py", "exec"), scope)
    rows = spark.createDataFrame([(1, "x", ("y", [(2,)]), {"k": (3, 4)}, 5)], schema)
    out = scope["transform"](rows)
    assert out.columns == ["order_no", "ship.to", "in_side", "m", "a`b"]
    assert json.loads(out.select(F.to_json(F.struct("*"))).first()[0]) == {
        "order_no": 1,
        "ship.to": "x",
        "in_side": {"a_b": "y", "c": [{"d": 2}]},
        "m": {"k": {"e_f": 3, "e_f_2": 4}},
        "a`b": 5,
    }
    normalise_schema(out.schema.json())

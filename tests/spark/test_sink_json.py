"""A row on its way to a Kafka sink is what Spark's ``to_json`` makes of it, times in microseconds and nulls kept."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.sinks.kafka_records import encode_row, key_encoder, make_encoders, to_plain
from tidegate.sinks.rows import read_file
from tidegate.table.log.state import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = """
SELECT
  id, text, CAST(length(text) AS TINYINT) AS b, CAST(-7 AS SMALLINT) AS s, CAST(length(text) AS INT) AS i,
  CAST(0.1 AS FLOAT) AS f, d, id = 1 AS flag, CAST(12.50 AS DECIMAL(10,2)) AS price,
  CAST(1e-10 AS DECIMAL(20,10)) AS tiny, CAST(text AS BINARY) AS raw, day, at,
  named_struct('at', at, 'n', CAST(NULL AS INT), 'day', day) AS inner,
  array(at, NULL) AS times, map('k"', at) AS by_text, map(id, 1.50BD) AS by_number, array(named_struct('x', id)) AS deep
FROM VALUES
  (1L, 'Zoë "quoted" \\n\\u0001 \\\\ /', 1.5D, DATE'2026-01-02', TIMESTAMP'2026-01-02 03:04:05.678901'),
  (-5L, '', double('NaN'), DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.999999'),
  (9223372036854775807L, '\\uD83D\\uDE00', double('-Infinity'), DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59'),
  (3L, NULL, 1e300D, NULL, NULL)
AS t(id, text, d, day, at)
"""


def test_parity_with_to_json(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(_ROWS).coalesce(1)
    frame.write.parquet(str(tmp_path / "t"))
    [path] = (tmp_path / "t").glob("*.parquet")
    options = "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSX\")"
    frame.createOrReplaceTempView("rows_to_feed")
    wanted = {
        row.id: json.loads(row.text, parse_float=Decimal)
        for row in spark.sql(f"SELECT id, to_json(struct(*), {options}) AS text FROM rows_to_feed").collect()
    }
    schema_json = frame.schema.json()
    encoders = make_encoders(schema_json)
    found = {}
    for batch in read_file(tmp_path / "t", DataFile(path.name, 4, 1), schema_json):
        for row in to_plain(batch):
            found[row["id"]] = json.loads(encode_row(row, encoders), parse_float=Decimal)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            assert found[key][name] == value, (key, name)  # as numbers: 1E-10 is 0.0000000001
        assert list(found[key]) == list(row)


def test_years_that_python_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT date_from_unix_date(5000000) AS day, timestamp_micros(400000000000000000) AS at"
    ).coalesce(1)
    frame.write.parquet(str(tmp_path / "t"))
    [path] = (tmp_path / "t").glob("*.parquet")
    [batch] = read_file(tmp_path / "t", DataFile(path.name, 1, 1), frame.schema.json())
    [row] = to_plain(batch)
    assert encode_row(row, make_encoders(frame.schema.json())) == (
        '{"day":"15659-07-15","at":"14645-06-30T15:06:40.000000Z"}'
    )


def test_keys_are_text() -> None:
    assert key_encoder("string")('a "b"') == 'a "b"'
    assert key_encoder("binary")(b"\x00\xff") == b"\x00\xff"
    assert key_encoder("long")(7) == "7"
    assert key_encoder("timestamp")(1_767_225_600_000_001) == "2026-01-01T00:00:00.000001Z"
    assert key_encoder("date")(20454) == "2026-01-01"
    assert key_encoder("boolean")(True) == "true"

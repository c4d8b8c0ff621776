"""``unknown_fields: rescue``: what the schema lacks is kept as it is written, where it was."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.sources.readers.lines import Refused
from tidegate.sources.readers.records import Completion, Found
from tidegate.sources.readers.worker import TextsReader
from tidegate.spec.ddl import parse_ddl

DDL = "id INT, a STRUCT<b: INT>, rows ARRAY<STRUCT<p: INT>>, by MAP<STRING, STRUCT<`x y`: INT>>, s STRING"


def _read(*texts: str, ddl: str = DDL, **options: str) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({"_raw": list(texts), "_position": ["x"] * len(texts)})
    return [row for one in TextsReader(Form("json", ddl, "rescue", options))(iter([batch])) for row in one.to_pylist()]


CASES: dict[str, str | None] = {
    '{"id":1}': None,
    '{"id":1,"new":null}': '{"new":null}',
    '{"id":1,"a":{"b":1,"lost":"x"}}': '{"a":{"lost":"x"}}',
    '{"n":{"x":1}}': '{"n":{"x":1}}',
    '{"more":1.10,"id":1,"big":12345678901234567890.10,"tiny":1e-400}': (
        '{"more":1.10,"big":12345678901234567890.10,"tiny":1e-400}'
    ),
    '{"x": {"k" : [1, "a"]}, "id":2, "it\'s":"\\u00e9"}': '{"x":{"k":[1,"a"]},"it\'s":"é"}',
    '{"ID":3}': '{"ID":3}',
    '{"rows":[{"p":1},{"p":2,"lost":5.10},null,{"lost":6}],"top":true}': (
        '{"top":true,"rows":[null,{"lost":5.10},null,{"lost":6}]}'
    ),
    '{"by":{"k":{"x y":1,"z":{"deep":1}},"l":{"x y":1}}}': '{"by":{"k":{"z":{"deep":1}}}}',
    '{"s":{"free":1}}': None,
    '{"a":null,"rows":[null],"by":{"k":null}}': None,
    '{"new":NaN}': '{"new":"NaN"}',
    '{"new":"a\\"b\\n"}': '{"new":"a\\"b\\n"}',
}


@pytest.mark.parametrize(("text", "wanted"), CASES.items())
def test_unknown_fields_where_they_were(text: str, wanted: str | None) -> None:
    [row] = _read(text)
    assert (row["_malformed"], row["_detail"], row["_rescued"]) == (False, None, wanted)
    assert (row["_unknown"] is None) == (wanted is None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id":"x","new":1}', "id: not an INT"),
        ('{"new":1,"new":2}', "new: this key is there twice"),
        ('{"new":1,"new":2,"new":{"k":1}}', "new: this key is there twice"),
        ('{"n":{"k":1,"k":2}}', "n: this key is there twice"),
        ('{"n":[{"k":{"l":1,"l":1}}]}', "n: this key is there twice"),
        ('{"a":{"b":1,"q":1,"q":2}}', "a.q: this key is there twice"),
        ('{"new":"\\ud800"}', "new: half of a surrogate pair, which is not a character"),
        ('{"new":', "not valid JSON"),
    ],
)
def test_a_malformed_record_has_nothing_to_rescue_and_stops_nobody(text: str, why: str) -> None:
    before, row, after = _read('{"id":1,"q":1}', text, '{"id":2,"q":2}')
    assert (row["_malformed"], row["_detail"], row["_rescued"], row["_raw"]) == (True, why, None, text)
    assert (before["_rescued"], after["_rescued"]) == ('{"q":1}', '{"q":2}')


@pytest.mark.parametrize("levels", [100, 450, 800, 5000])
def test_many_levels_stop_nobody(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    row, after = _read(f'{{"id":1,"new":{deep}}}', '{"id":2,"q":2}')
    assert after["_rescued"] == '{"q":2}'
    if levels >= 5000 or (row["_malformed"] and levels > 100):
        assert (row["_detail"], row["_rescued"]) == ("more levels than can be read", None)
    else:
        assert row["_rescued"] == f'{{"new":{deep}}}'


def test_fields_of_lenient_json_are_written_as_json() -> None:
    [row] = _read("{'id':01,'new':'it\\'s',more:[007]/**/}", **dict.fromkeys(
        ("allowSingleQuotes", "allowComments", "allowNumericLeadingZeros", "allowUnquotedFieldNames"), "true"
    ))  # fmt: skip
    assert (row["id"], row["_rescued"]) == (1, '{"new":"it\'s","more":[7]}')


def test_the_column_is_behind_those_of_the_schema() -> None:
    names = [column.name for column in parse_ddl(f"id INT, {RESCUED_DDL}, day STRING, {FRAMEWORK_DDL}")]
    form = Form("json", "id INT", "rescue")
    texts = pa.RecordBatch.from_pydict({"_raw": ['{"id":1,"q":2}'], "_position": ["p"], "day": ["x"]})
    [batch] = TextsReader(form, ["day"])(iter([texts]))
    assert batch.schema.names == names and batch.to_pylist()[0]["_rescued"] == '{"q":2}'
    whole = Completion(form).complete(Found.refused(form.root, Refused(b"{", 1, "too long")), pa.array(["p"]))
    assert "day" not in whole.schema.names and whole.to_pylist()[0]["_rescued"] is None


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@given(fields=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), _JSON, max_size=4))
def test_unknown_fields_lose_nothing(fields: dict[str, Any]) -> None:
    unknown = {name: value for name, value in fields.items() if name not in ("id", "a", "rows", "by", "s")}
    [row] = _read(json.dumps({"id": 1, **unknown}))
    assert (json.loads(row["_rescued"]) if row["_rescued"] else {}) == unknown

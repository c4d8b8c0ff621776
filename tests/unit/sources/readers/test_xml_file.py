"""XML files as records: cut by a parser of XML, and against Python's own reader of trees."""

from __future__ import annotations

import contextlib
import io
import random
import tracemalloc
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.page_outputs import shown
from tests.support.sweep import examples
from tidegate.sources.readers import xml_file, xml_text
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.values import Number, Pairs
from tidegate.sources.readers.worker import TextsReader
from tidegate.sources.readers.xml_file import Cutter, Shaper, XmlOptions, XmlReader
from tidegate.sources.readers.xml_text import read_text
from tidegate.spec.ddl import parse_ddl, read_columns

DDL = (
    "_id BIGINT, s STRING, n INT, l ARRAY<DOUBLE>, p STRUCT<_cur: STRING, _VALUE: DECIMAL(9,2)>, m MAP<STRING,BOOLEAN>"
)


class Row(NamedTuple):
    raw: str
    line: int
    values: dict[str, Any] | None
    detail: str | None
    unknown: list[str]


def read(text: str | bytes, ddl: str = DDL, outside: list[str] | None = None, **options: str) -> list[Row]:
    """The records ``r`` of a file; those without a fault have values, without the nulls."""
    data = text if isinstance(text, bytes) else text.encode()

    @contextlib.contextmanager
    def open_file() -> Iterator[BinaryIO]:
        yield io.BytesIO(data)

    columns = parse_ddl(ddl)
    reader, rows = XmlReader(Form("xml", ddl, options={"rowTag": "r", **options})), list[Row]()
    for some in reader.read_file(open_file):
        for at, (raw, number) in enumerate(zip(some.raws or (), some.numbers, strict=True)):
            cells = [column[at].as_py() for column in some.batch.columns]
            found = {name.name: cell for name, cell in zip(columns, cells, strict=True) if cell is not None}
            wrong = some.batch.wrong.get(at)
            detail = None if wrong is None else wrong.detail
            rows.append(Row(raw.decode(), number, found or None, detail, list(some.batch.unknown.get(at, ()))))
        if outside is not None:
            outside += some.outside
    return rows


def shape(text: str, **options: str) -> Any:
    """The one record of a file as a value."""
    [record] = Cutter("r").cut([text.encode()])
    assert record.fault is None
    return Shaper(read_columns(parse_ddl(DDL)), XmlOptions.of({"rowTag": "r", **options})).shape(record)


def plain(value: Any) -> Any:
    """Objects as they come, numbers marked."""
    if isinstance(value, Pairs):
        return {name: plain(inner) for name, inner in value}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return f"#{value}" if isinstance(value, Number) else value


def test_the_example_of_the_page() -> None:
    total = "STRUCT<_currency: STRING, _VALUE: DECIMAL(12,2)>"
    ddl = f"_id BIGINT, name STRING, total {total}, lines ARRAY<STRUCT<sku: STRING>>"
    [row] = read(shown("an xml file"), ddl, rowTag="order")
    assert row.detail is None and row.values == {
        "_id": 1,
        "name": "Ann",
        "total": {"_currency": "EUR", "_VALUE": Decimal("1.50")},
        "lines": [{"sku": "a"}],
    }


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [1, 7, 1 << 18])
def test_records_are_those_of_the_tree(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_text, "_PIECE_BYTES", size)
    draw = random.Random(seed)

    def noise() -> str:
        return draw.choice(["", "\n  ", "<!-- <r> -->", "<?pi <r/> ?>", "<o><x/></o>", "<rr/>", "\r\n", "\r"])

    def record() -> str:
        text = draw.choice(["a > b", "<&>", "é\U0001f600", " "])
        kind = draw.randrange(4)
        tag = f"<r k={quoteattr(draw.choice(['/>', '>', chr(39), text]))}"
        if kind == 0:
            return f"{tag}/>"
        inner = draw.choice([escape(text), "<![CDATA[</r>]]>", "<r>\n<s>in</s></r>", "<!-- </r> --><s/>", ""])
        return f"{tag}>{inner}</r{draw.choice(['', ' '])}>"

    made, text, lines = [record() for _ in range(draw.randrange(1, 9))], "<all>", []
    for one in made:
        text += noise()
        lines.append(text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1)
        text += one
    text += noise() + "</all>"
    assert [(row.raw, row.line) for row in read(text)] == list(zip(made, lines, strict=True))
    assert len([one for one in ET.fromstring(text) if one.tag == "r"]) == len(made)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<n>+007</n>", {"n": "#7"}),
        ("<n>-0</n><s/>", {"n": "#-0", "s": ""}),
        ("<n> 7\n</n><s> a </s>", {"n": "#7", "s": "a"}),
        ("<n>7\u00a0</n>", {"n": "7\u00a0"}),
        ("<n>1,5</n>", {"n": "1,5"}),
        ("<n>.</n>", {"n": "."}),
        ("<n>e5</n>", {"n": "e5"}),
        ("<n>0e5</n>", {"n": "#0e5"}),
        ("<n/>", {"n": None}),
        ("<l>1.50</l><s>x</s><l>.5</l><l>-INF</l>", {"s": "x", "l": ["#1.50", "#0.5", "-INF"]}),
        ("<p cur='EUR'>1.10</p>", {"p": {"_cur": "EUR", "_VALUE": "#1.10"}}),
        ("<m><a>true</a><b>0</b></m>", {"m": {"a": True, "b": False}}),
        ("<s>a<i x='1'>b</i>&amp;</s>", {"s": "a<i x='1'>b</i>&amp;"}),
        ("<s>a<!-- x -->b<![CDATA[<c>]]></s>", {"s": "ab<c>"}),
        (
            "<n u='k'>1</n>loose<z><y>1</y><y>2</y></z>",
            {"n": "#1", "_VALUE": "loose", "n._u": "k", "z": {"y": ["1", "2"]}},
        ),
        ("<N>1</N>", {"N": "1"}),
        ("<n><x>1</x></n>", {"n": {"x": "1"}}),
    ],
)
def test_values_are_those_of_their_types(text: str, wanted: object) -> None:
    assert plain(shape(f"<r>{text}</r>")) == wanted


def test_options() -> None:
    text = "<r id='5'><x:s xmlns:x='u'> a </x:s><n>-</n></r>"
    assert plain(shape(text, ignoreNamespace="true", nullValue="-")) == {"_id": "#5", "s": "a", "n": None}
    assert plain(shape("<r><s> a </s></r>", ignoreSurroundingSpaces="false")) == {"s": " a "}
    more = {"excludeAttribute": "true", "valueTag": "v", "attributePrefix": "@"}
    assert plain(shape("<r id='5'><p cur='E'>1</p></r>", **more)) == {"p": {"v": "1"}}


def test_a_record_is_found_in_any_namespace_where_none_counts() -> None:
    text = "<o xmlns:x='u'><x:r><s>a</s></x:r><r><x:s>b</x:s></r></o>"
    assert [row.values for row in read(text, ignoreNamespace="true")] == [{"s": "a"}, {"s": "b"}]
    outside: list[str] = []
    assert len(read(text, outside=outside)) == 1 and "/o/x:r/s" in outside


def test_each_record_has_its_faults_and_unknown_fields() -> None:
    inner = "<n>1</n><n>2</n>"
    text = f"<a>\n<r id='x'>{inner}</r><r id='1'><p>1.505</p></r>\n<r><n u='k'>3</n></r><r id='2'><q><z/></q></r></a>"
    assert read(text, DDL.replace("_id BIGINT", "_id BIGINT NOT NULL")) == [
        Row(f"<r id='x'>{inner}</r>", 2, None, "_id: not a BIGINT; n: this key is there twice", []),
        Row("<r id='1'><p>1.505</p></r>", 2, None, "p._VALUE: more decimals than DECIMAL(9,2) holds", []),
        Row("<r><n u='k'>3</n></r>", 3, None, "_id: missing or null, but NOT NULL", []),
        Row("<r id='2'><q><z/></q></r>", 3, {"_id": 2}, None, ["q"]),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<a><r/>", "not well-formed XML: no element found, line 1, column 8"),
        ("<a><r></a>", "not well-formed XML: mismatched tag"),
        ("<a><r/></a><r/>", "not well-formed XML: junk after document element"),
        ("<a><r>&b;</r></a>", "not well-formed XML: undefined entity"),
        (
            "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a><r>&b;</r></a>",
            "it has a document type definition",
        ),
        (
            "<!DOCTYPE a [<!ENTITY b 'bb'><!ENTITY c '&b;&b;&b;&b;'>]><a><r>&c;</r></a>",
            "it has a document type definition",
        ),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a><r>&b;</r></a>", "the entity b is not known"),
        ("<a><b/></a>", "there is no element r"),
        ("text", "not well-formed XML"),
        ("<r>" + "<s>" * 64 + "</s>" * 64 + "</r>", "more than 64 levels of elements"),
        ("<r>" + "<s/>" * 1000 + "</r>", "more than 1,000 elements"),
        ("<!DOCTYPE a SYSTEM 'x'><a><r s='p&amp;q'><o k='&#66;&b;'/></r></a>", "the entity b is not known"),
        ("<?xml version='1.0' encoding='nope'?><r/>", "its encoding nope is not known"),
        ("<?xml version='1.0' encoding='hex'?><r/>", "its encoding hex is not known"),
        ("<?xml version='1.0' encoding='undefined'?><r/>", "its encoding undefined is not known"),
        ("<?xml version='1.0' encoding='Unicode_Escape'?><r>\\ud800</r>", "its encoding Unicode_Escape is not known"),
        ("<?xml version='1.0' encoding='utf-7'?><r>+2AA-</r>", "half of a surrogate pair"),
        ("<?xml version='1.0' encoding='utf-7'?><r>\xfc</r>", "not valid UTF-7, at byte 42"),
        ("<?xml version='1.0' encoding='windows-1252'?><r>\x81</r>", "not valid windows-1252, at byte 50"),
    ],
)
def test_what_cannot_be_read_is_one_record(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_file, "_ELEMENTS", 1000)
    [row] = read(text)
    assert row.detail is not None and row.detail.startswith(why)
    assert row.line == 1 and (row.raw == text or "encoding" in text)


@pytest.mark.parametrize("size", [1, 2, 3, 1 << 18])
def test_encodings_are_those_of_the_file_or_of_the_option(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if size > 1:  # the declaration is looked for in the first piece
        monkeypatch.setattr(xml_text, "_PIECE_BYTES", max(size, 60))
    text = "<r><s>é\U0001f600</s></r>"
    wanted = [Row(text, 1, {"s": "é\U0001f600"}, None, [])]
    declared = f"<?xml version='1.0' encoding='{{}}'?>{text}".format
    for encoding in ("utf-8-sig", "utf-16", "utf-32", "gb18030"):
        assert read(declared(encoding.removesuffix("-sig")).encode(encoding)) == wanted
    for encoding in ("utf-16-le", "utf-16-be"):
        assert read(declared("UTF-16").encode(encoding)) == wanted, "without a mark"
        option = encoding.upper().replace("-16-", "-16")
        assert read(text.encode(encoding), encoding=option) == wanted
        assert read(("\ufeff" + text).encode(encoding), encoding=option) == wanted
    [row] = read("<r><s>é</s></r>".encode("latin-1"), encoding="ISO-8859-1")
    assert row.values == {"s": "é"}
    assert read("<r><s>é</s></r>".encode("latin-1")) == [
        Row("PHI+PHM+6Twvcz48L3I+", 1, None, "not valid UTF-8, at byte 7", [])
    ]


def test_values_outside_of_records_are_named() -> None:
    outside: list[str] = []
    text = "<a v='1' xmlns='u'><h>x</h>t<o><r/></o><o><h>y</h></o><r/><i>z</i></a>"
    assert len(read(text, outside=outside)) == 2
    assert outside == ["/a/@v", "/a/h", "/a", "/a/o/h", "/a/i"]
    assert read(" \n") == read("") == read("\ufeff") == []


def test_an_attribute_of_a_file_with_an_outer_definition() -> None:
    text = "<!DOCTYPE a SYSTEM 'x'><a><r id='&#49;'><s k='&lt;>&amp;'>&gt;</s></r></a>"
    [row] = read(text)
    assert (row.values, row.unknown) == ({"_id": 1, "s": ">"}, ["s._k"])


def test_many_zeros_take_no_time() -> None:
    """Some 10^13 steps, if the pattern went back."""
    zeros = "0" * 3_000_000
    assert plain(shape(f"<r><n>{zeros}x</n><p>{zeros}.0</p></r>")) == {"n": f"{zeros}x", "p": {"_VALUE": "#0.0"}}


_TEXT = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs", "Cn", "Co"]) | st.sampled_from("\n\t"), max_size=6
)
_FIELDS = st.fixed_dictionaries(
    {}, optional={"_id": st.integers(-(1 << 63), (1 << 63) - 1), "s": _TEXT, "n": st.integers(0, 9)}
)


@settings(max_examples=examples(200), deadline=None)
@given(
    rows=st.lists(_FIELDS, min_size=1, max_size=8),
    size=st.integers(40, 90),
    codec=st.sampled_from(["utf-8", "utf-16", "utf-32", "gb18030"]),
    cdata=st.booleans(),
)
def test_known_values_come_back(rows: list[dict[str, Any]], size: int, codec: str, cdata: bool) -> None:
    def write(text: str) -> str:
        return f"<![CDATA[{text}]]>" if cdata and "]]>" not in text else escape(text)

    def element(row: dict[str, Any]) -> str:
        tag = f"<r id='{row['_id']}'>" if "_id" in row else "<r >"
        return tag + "".join(f"<{key}>{write(str(row[key]))}</{key}>" for key in ("n", "s") if key in row) + "</r>"

    text = f"<?xml version='1.0' encoding='{codec}'?><a>" + "\n".join(map(element, rows)) + "</a>"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xml_text, "_PIECE_BYTES", size * (4 if codec == "utf-32" else 2))
        patch.setattr(xml_file, "_ROWS_AT_MOST", 3)
        found = read(text.encode(codec))
    wanted = [{**row, "s": row["s"].strip(" \t\n")} if "s" in row else row for row in rows]
    assert [row.values for row in found] == [row or None for row in wanted]
    assert [row.detail for row in found] == [None] * len(rows)


def test_a_record_that_is_too_long_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_file, "LONGEST_RECORD_BYTES", 100)
    monkeypatch.setattr(xml_file, "KEPT_BYTES", 10)
    limit = "the limit is 8,388,608 bytes"
    for size in (1, 30, 1000):
        monkeypatch.setattr(xml_text, "_PIECE_BYTES", size)
        for inner in ("é" * 60, "<s>x\n</s>" * 30, "<!--" + "-x" * 90 + "-->", "<r><s>" + "<n/>" * 60 + "</s></r>"):
            long = f"<r>{inner}</r >"
            assert read(f"<a>\n<r><n>1</n></r>{long}\n<r><n>2</n></r></a>") == [
                Row("<r><n>1</n></r>", 2, {"n": 1}, None, []),
                Row(
                    long.encode()[:10].decode(errors="ignore"),
                    2,
                    None,
                    f"a record of {len(long.encode())} bytes; {limit}",
                    [],
                ),
                Row("<r><n>2</n></r>", 3 + inner.count("\n"), {"n": 2}, None, []),
            ]
        row = read(f"<a><r k='{'x' * 100}'/></a>")[0]
        assert row.detail == f"a record of 109 bytes; {limit}"


def test_files_that_are_too_large_for_a_record_keep_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_file, "LONGEST_RECORD_BYTES", 50)
    monkeypatch.setattr(xml_file, "KEPT_BYTES", 10)
    [row] = read("<a>" + "<r/>" * 20)
    assert row.raw == "<a><r/><r/" and str(row.detail).endswith(
        "; it has more bytes than a record may have; the limit is 8,388,608 bytes"
    )


def test_a_tag_without_an_end_is_not_held() -> None:
    [row] = read("<a>\n<r k='" + "x" * (9 << 20))
    assert row.detail is not None and row.detail.startswith("a tag, a comment or an instruction of more than 8,388,608")
    blanks, text = " \n" * (5 << 20), "a" * (9 << 20)
    [row] = read(f"{blanks}<a>{text}<r><n>1</n></r>{blanks}</a>")
    assert row.values == {"n": 1} and row.line == blanks.count("\n") + 1


def test_a_large_file_is_not_held() -> None:
    piece = "<r id='7'><s>" + "x" * 500 + "</s><n>1</n></r>\n"

    @contextlib.contextmanager
    def open_file() -> Iterator[BinaryIO]:
        yield io.BytesIO(data)

    data = b"<a>" + piece.encode() * 30_000 + b"</a>"
    reader = XmlReader(Form("xml", DDL, options={"rowTag": "r"}))
    tracemalloc.start()
    try:
        count = sum(len(some.numbers) for some in reader.read_file(open_file))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 30_000 and peak < 18 << 20


def test_pieces_of_a_text_may_be_empty() -> None:
    assert b"".join(read_text(io.BytesIO(b"\xef\xbb\xbf<a/>"), None)) == b"<a/>"


def test_texts_of_records_at_hand() -> None:
    texts = ["<r id='7'><n>1</n></r>", "<r><n>x</n></r>", "<a><r/><r/></a>", "<a/>", "<r>", "", "<!--c--><r id='8'/>"]
    batch = pa.RecordBatch.from_pydict({"_raw": texts, "_position": ["p"] * len(texts)})
    [found] = TextsReader(Form("xml", DDL, options={"rowTag": "r"}))(iter([batch]))
    rows = found.to_pylist()
    assert [(row["_id"], row["_detail"]) for row in rows[:4]] == [
        *((7, None), (None, "n: not an INT")),
        *((None, "not one element r"), (None, "not one element r")),
    ]
    assert rows[4]["_detail"].startswith("not well-formed XML") and rows[5]["_malformed"]
    assert (rows[6]["_id"], rows[6]["_malformed"]) == (8, False)
    assert [row["_raw"] for row in rows][:5] == texts[:5]

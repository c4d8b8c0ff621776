"""XML cut into records and written as JSON, against Python's own reader of trees."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.support.page_outputs import shown
from tidegate.sources.files.xml_records import Type, read_records, rules_of

TEXT: Type = ("string", ())
PRICE: Type = ("struct", (("_cur", TEXT), ("_VALUE", ("decimal", ()))))
COLUMNS: tuple[tuple[str, Type], ...] = (
    ("_id", ("bigint", ())),
    ("s", TEXT),
    ("n", ("int", ())),
    ("l", ("array", (("", ("double", ())),))),
    ("p", PRICE),
    ("m", ("map", (("", ("boolean", ())),))),
)


def read(text: str | bytes, **options: str) -> list[tuple[str, object]]:
    """(raw, the values, or the fault where there is one) of each record ``r``."""
    data = text if isinstance(text, bytes) else text.encode()
    found = read_records(data, rules_of({"rowTag": "r", **options}, COLUMNS))
    return [(one.raw, one.fault or json.loads(one.values, parse_float=str, parse_int=str)) for one in found]


def values(text: str, **options: str) -> object:
    [(_, found)] = read(f"<r>{text}</r>", **options)
    return found


def test_the_example_of_the_page() -> None:
    lines: Type = ("array", (("", ("struct", (("sku", TEXT),))),))
    total: Type = ("struct", (("_currency", TEXT), ("_VALUE", ("decimal", ()))))
    columns = (("_id", ("bigint", ())), ("name", TEXT), ("total", total), ("lines", lines))
    [found] = read_records(shown("an xml file").encode(), rules_of({"rowTag": "order"}, columns))
    assert found.fault is None and json.loads(found.values, parse_float=str) == {
        "_id": 1,
        "name": "Ann",
        "total": {"_currency": "EUR", "_VALUE": "1.50"},
        "lines": [{"sku": "a"}],
    }


@pytest.mark.parametrize("seed", range(20))
def test_records_are_those_of_the_tree(seed: int) -> None:
    draw = random.Random(seed)

    def noise() -> str:
        return draw.choice(["", "\n  ", "<!-- <r> -->", "<?pi <r/> ?>", "<o><x/></o>", "<rr/>"])

    def record() -> str:
        text = draw.choice(["a > b", "<&>", "é\U0001f600", " "])
        kind = draw.randrange(4)
        tag = f"<r k={quoteattr(draw.choice(['/>', '>', chr(39), text]))}"
        if kind == 0:
            return f"{tag}/>"
        inner = draw.choice([escape(text), "<![CDATA[</r>]]>", "<r><s>in</s></r>", "<!-- </r> --><s/>", ""])
        return f"{tag}>{inner}</r{draw.choice(['', ' '])}>"

    made = [record() for _ in range(draw.randrange(1, 9))]
    text = "<all>" + "".join(noise() + one for one in made) + noise() + "</all>"
    assert [raw for raw, _ in read(text)] == made
    assert len([one for one in ET.fromstring(text) if one.tag == "r"]) == len(made)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<n>+007</n>", {"n": "7"}),
        ("<n>-0</n><s/>", {"n": "-0", "s": ""}),
        ("<n> 7\n</n><s> a </s>", {"n": "7", "s": "a"}),
        ("<n>7\u00a0</n>", {"n": "7\u00a0"}),
        ("<n>1,5</n>", {"n": "1,5"}),
        ("<n/>", {"n": None}),
        ("<l>1.50</l><s>x</s><l>.5</l><l>-INF</l>", {"s": "x", "l": ["1.50", "0.5", "-Infinity"]}),
        ("<p cur='EUR'>1.10</p>", {"p": {"_cur": "EUR", "_VALUE": "1.10"}}),
        ("<m><a>true</a><b>0</b></m>", {"m": {"a": True, "b": False}}),
        ("<s>a<i x='1'>b</i>&amp;</s>", {"s": "a<i x='1'>b</i>&amp;"}),
        ("<s>a<!-- x -->b<![CDATA[<c>]]></s>", {"s": "ab<c>"}),
        (
            "<n u='k'>1</n>loose<z><y>1</y><y>2</y></z>",
            {"n": "1", "_VALUE": "loose", "n._u": "k", "z": {"y": ["1", "2"]}},
        ),
        ("<N>1</N>", {"N": "1"}),
    ],
)
def test_values_become_json_by_their_types(text: str, wanted: object) -> None:
    assert values(text) == wanted


def test_an_element_that_is_there_twice_is_a_key_that_is_there_twice() -> None:
    [record] = read_records(b"<r><n>1</n><n>2</n></r>", rules_of({"rowTag": "r"}, COLUMNS))
    assert record.values == '{"n":1,"n":2}'


def test_options() -> None:
    [(_, found)] = read("<r id='5'><x:s xmlns:x='u'> a </x:s><n>-</n></r>", ignoreNamespace="true", nullValue="-")
    assert found == {"_id": "5", "s": "a", "n": None}
    assert values("<s> a </s>", ignoreSurroundingSpaces="false") == {"s": " a "}
    [(_, found)] = read("<r id='5'><p cur='E'>1</p></r>", excludeAttribute="true", valueTag="v", attributePrefix="@")
    assert found == {"p": {"v": "1"}}


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
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a><r>&b;</r></a>", "the entity b is not known"),
        ("<a><b/></a>", "there is no element r"),
        ("text", "not well-formed XML"),
        ("<r>" + "<s>" * 64 + "</s>" * 64 + "</r>", "more than 64 levels of elements"),
        ("<r>" + "<s/>" * 100_000 + "</r>", "more than 100,000 elements"),
        ("<!DOCTYPE a SYSTEM 'x'><a><r s='p&amp;q'><o k='&#66;&b;'/></r></a>", "the entity b is not known"),
        ("<?xml version='1.0' encoding='nope'?><r/>", "its encoding nope is not known"),
        ("<?xml version='1.0' encoding='hex'?><r/>", "its encoding hex is not known"),
        ("<?xml version='1.0' encoding='undefined'?><r/>", "its encoding undefined is not known"),
        ("<?xml version='1.0' encoding='Unicode_Escape'?><r>\\ud800</r>", "its encoding Unicode_Escape is not known"),
        ("<?xml version='1.0' encoding='utf-7'?><r>+2AA-</r>", "half of a surrogate pair"),
        ("<?xml version='1.0' encoding='utf-7'?><r>\xfc</r>", "not valid UTF7"),
    ],
)
def test_what_cannot_be_read_is_one_record(text: str, why: str) -> None:
    [(raw, told)] = read(text)
    assert str(told).startswith(why)
    assert raw == text or "encoding" in text


def test_encodings_are_those_of_the_file_or_of_the_option() -> None:
    wanted = [("<r><s>é</s></r>", {"s": "é"})]
    text = wanted[0][0]
    declared = f"<?xml version='1.0' encoding='{{}}'?>{text}".format
    for encoding in ("utf-8-sig", "utf-16", "utf-32", "windows-1252"):
        assert read(declared(encoding.removesuffix("-sig")).encode(encoding)) == wanted
    for encoding in ("utf-16-le", "utf-16-be"):
        assert read(declared("UTF-16").encode(encoding)) == wanted, "without a mark"
    assert read(text.encode("latin-1"), encoding="ISO-8859-1") == wanted
    assert read(text.encode("latin-1")) == [("PHI+PHM+6Twvcz48L3I+", "not valid UTF-8")]


def test_values_outside_of_records_are_named_with_the_first() -> None:
    text = "<a v='1' xmlns='u'><h>x</h>t<o><r/></o><o><h>y</h></o><r/></a>"
    found = read_records(text.encode(), rules_of({"rowTag": "r"}, COLUMNS))
    assert [one.outside for one in found] == [["/a/@v", "/a/h", "/a", "/a/o/h"], []]
    assert read(" \n") == []


def test_an_attribute_of_a_file_with_an_outer_definition() -> None:
    [(_, found)] = read("<!DOCTYPE a SYSTEM 'x'><a><r id='&#49;'><s k='&lt;>&amp;'>&gt;</s></r></a>")
    assert found == {"_id": "1", "s": ">", "s._k": "<>&"}


def test_many_zeros_take_no_time() -> None:
    """Some 10^13 steps, if the pattern went back."""
    zeros = "0" * 10_000_000
    assert values(f"<n>{zeros}x</n><p>{zeros}.0</p>") == {"n": f"{zeros}x", "p": {"_VALUE": "0.0"}}

"""`tidegate init` and `tidegate new`: sound at once, and never over what is there."""

from __future__ import annotations

import ast
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.parts import read
from tidegate.cli.scaffold.infer_columns import infer_record_columns
from tidegate.cli.scaffold.write import EXAMPLE, init_project, new_bare_pipeline, new_pipeline
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.sources.readers.ways import Ways
from tidegate.spark.driver.submit import find_application
from tidegate.spec.ddl import parse_ddl, quote_name
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import load_project
from tidegate.spec.reader_options import parser_options
from tidegate.spec.transform import read_transform
from tidegate.views.doctor import examine
from tidegate.views.validate import validate_pipelines

REPOSITORY = Path(__file__).parents[4]


def test_a_new_project_is_sound(tmp_path):
    written = init_project(tmp_path / "demo")
    project = load_project(tmp_path / "demo", {})
    assert list_pipelines(project) == [EXAMPLE] == [written.pipeline]
    assert validate_pipelines(project, None, with_spark=False) == []
    assert all((project.root / path).is_file() for path in written.files)
    assert read_transform(project, load_pipeline(project, EXAMPLE))[1] == []
    on_disk = {str(path.relative_to(project.root)) for path in project.root.rglob("*") if path.is_file()}
    assert on_disk == set(written.files)


def test_no_mark_is_left_and_python_is_python(tmp_path):
    written = init_project(tmp_path / "demo", "first_one")
    for path in written.files:
        text = (written.root / path).read_text(encoding="utf-8")
        assert "@NAME@" not in text + path
        if path.endswith(".py"):
            ast.parse(text)
    dag = (written.root / "dags/first_one.py").read_text(encoding="utf-8")
    assert dag == 'from tidegate.airflow import build_dag\n\ndag = build_dag("first_one")\n'


def test_a_project_is_started_through_its_own_application_or_the_package_s(tmp_path):
    """The package's is the repository's, in a folder with nothing else: Spark puts that folder on Python's path."""
    init_project(tmp_path / "demo")
    project = load_project(tmp_path / "demo", {})
    shipped = find_application(project)
    assert shipped.name == "tidegate_job.py" and not shipped.is_relative_to(tmp_path)
    assert {path.name for path in shipped.parent.glob("*.py")} == {"tidegate_job.py", "__init__.py"}

    def body(path: Path) -> list[ast.stmt]:
        return ast.parse(path.read_text(encoding="utf-8")).body[1:]

    ours = REPOSITORY / "jobs/tidegate_job.py"
    assert [ast.dump(one) for one in body(shipped)] == [ast.dump(one) for one in body(ours)]
    own = project.jobs / "tidegate_job.py"
    for text in ("", "import os, tidegate\nfrom tidegate.spark.application import main\n", "def"):
        own.write_text(text)
        assert find_application(project) == own


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from tidegate.application import main", "tidegate.application"),
        ("from tidegate.spark.application import start", "start from tidegate.spark.application"),
        ("if __name__ == '__main__':\n    from tidegate.job import main", "tidegate.job"),
    ],
)
def test_an_application_of_another_version_is_refused_by_doctor_and_before_a_driver_starts(tmp_path, line, missing):
    init_project(tmp_path / "demo")
    project = load_project(tmp_path / "demo", {})
    own = project.jobs / "tidegate_job.py"
    own.write_text(f"import sys\n{line}\n")
    with pytest.raises(DisagreementError) as refused:
        find_application(project)
    error = refused.value
    assert (error.code, error.exit_code) == ("APPLICATION_OUTDATED", 78)
    assert f"{own} belongs to another version of tidegate: it imports {missing}, which" in error.message
    [found] = [one for one in examine(project) if one.check == "application"]
    assert not found.ok and error.message in found.found and str(found.fix).startswith(f"remove {own}")


def test_the_sample_has_rows_that_pass_and_some_that_do_not(tmp_path):
    written = init_project(tmp_path / "demo")
    lines = (written.root / f"data/inbox/{EXAMPLE}/sample.json").read_text(encoding="utf-8").splitlines()
    rows, torn = [], 0
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            torn += 1
    odd = [row for row in rows if not -60 <= row["celsius"] <= 60]
    spec = load_pipeline(load_project(written.root, {}), EXAMPLE)
    assert (len(lines), torn, len(odd)) == (24, 1, 1)
    assert (torn + len(odd)) / len(lines) < (spec.quality.max_quarantine_share or 0)


def test_a_new_pipeline(tmp_path):
    init_project(tmp_path / "demo")
    project = load_project(tmp_path / "demo", {})
    written = new_pipeline(project, "second_one")
    assert "jobs/second_one/pipeline.yaml" in written.files
    assert list_pipelines(project) == ["second_one", EXAMPLE]
    assert validate_pipelines(project, None, with_spark=False) == []


def test_nothing_is_overwritten(tmp_path):
    root = tmp_path / "demo"
    init_project(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for act in (lambda: init_project(root), lambda: new_pipeline(load_project(root, {}), EXAMPLE)):
        with pytest.raises(UsageError) as caught:
            act()
        assert caught.value.code == "FILE_EXISTS"
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_one_file_in_the_way_and_nothing_is_written(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UsageError, match=r"README\.md already exists"):
        init_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_folder_with_other_things_may_become_a_project(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    init_project(tmp_path)
    assert validate_pipelines(load_project(tmp_path, {}), None, with_spark=False) == []


@pytest.mark.parametrize("name", ["../x", "Ab", "x", "a b"])
def test_bad_names(tmp_path, name):
    init_project(tmp_path / "demo")
    with pytest.raises(UsageError) as caught:
        new_pipeline(load_project(tmp_path / "demo", {}), name)
    assert caught.value.code == "BAD_NAME"


def test_bad_folders(tmp_path):
    with pytest.raises(UsageError) as caught:
        init_project(tmp_path / "a[b]")
    assert caught.value.code == "BAD_PROJECT_PATH"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        init_project(tmp_path / "file")
    assert caught.value.code == "CANNOT_WRITE"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "in").mkdir()
    return load_project(tmp_path, {})


@pytest.mark.parametrize(
    ("file", "content", "columns", "options"),
    [
        (
            "a.json",
            '{"id": "x", "n": 1, "at": "2026-03-09T18:00:00Z", "in": {"a b": [1.5]}, "no": null}\n{"id": "y"}\n',
            "id string, n bigint, at timestamp, in struct<`a b`:array<double>>, no string",
            {},
        ),
        (
            "b.csv",
            "Order No;zip;price;day\n1;00501;2.5;2026-03-09\n2;10001;3;2026-03-10\n",
            "`Order No` bigint, zip string, price double, day date",
            {"header": True, "sep": ";"},
        ),
        ("c.log", "anything\n", "value string", {}),
        ("d.csv", 'id,said\n1,"say ""hi"""\n', "id bigint, said string", {"header": True, "escape": '"'}),
        ("e.csv", 'id,dir\n1,"C:\\x\\"\n', "id bigint, dir string", {"header": True, "escape": '"'}),
        ("f.csv", 'id,said\n1,"say \\"hi\\""\n', "id bigint, said string", {"header": True}),
        (
            "g.csv",
            'id\tsaid\n1\t"two\nlines"\n',
            "id bigint, said string",
            {"header": True, "sep": "\t", "escape": '"', "multiLine": True},
        ),
        ("h.csv", "1,2.5\n2,3\n", "f0 bigint, f1 double", {"header": False}),
        ("i.csv", "id\n12345678901234567890\n", "id decimal(38,0)", {"header": True}),
        ("j.csv", "name,town\nAnn,Rome\nBob\nEve,Bonn\n", "name string, town string", {"header": True}),
        (
            "k.csv",
            "id,2024,at\n1,NA,2026-03-09 18:00:00.5\n",
            "id bigint, `2024` string, at timestamp",
            {"header": True},
        ),
        ("l.csv", "\ufeffid,b\n1,true\n", "id bigint, b boolean", {"header": True}),
        ("m.json", '[\n{"a": 1},\n{"a": 2.5}\n]\n', "a double", {"multiLine": True}),
        ("n.json", '[{"a": 1}, {"a": 2}]', "a bigint", {"multiLine": True}),
        (
            "o.json",
            '{\n  "a": 1,\n  "b": {\n    "c": "x"\n  }\n}\n',
            "a bigint, b struct<c:string>",
            {"multiLine": True},
        ),
        ("p.json", '{\n  "a": 1\n}\n{\n  "a": 2.5\n}\n', "a double", {"multiLine": True}),
        ("q.json", "[\n" + '{\n"a": 1\n},\n' * 4_000 + '{\n"a": 2\n}\n]\n', "a bigint", {"multiLine": True}),
        ("r.json", '{\n"a": 1\n}\n' * 4_000, "a bigint", {"multiLine": True}),
        ("s.json", '[\n{"a": 1},\n7,\n{"a": 2}\n]', "a bigint", {"multiLine": True}),
    ],
)
def test_a_pipeline_for_a_file(project, file, content, columns, options):
    path = project.root / "in" / file
    path.write_text(content)
    written = new_bare_pipeline(project, "mine", sample=path)
    source = load_pipeline(project, "mine").sources["mine"]
    assert (source.path, source.options) == ("in", options)
    found = ", ".join(f"{quote_name(one.name)} {one.type}" for one in parse_ddl(source.schema))
    assert found == columns and written.columns is not None
    assert validate_pipelines(project, ["mine"], with_spark=False) == []
    renames = ["jobs/mine/transform.py"] if " No`" in columns or "`a b`" in columns else []
    assert sorted(written.files) == ["dags/mine.py", "jobs/mine/pipeline.yaml", *renames]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", '"one"'], "string"),
        (["1", "true"], "string"),
        (["{}", "1"], "string"),
        (["1", "null", "-9223372036854775808"], "bigint"),
        (["1", "9223372036854775808"], "decimal(38,0)"),
        (["12345678901234567890123456789012345678"], "decimal(38,0)"),
        (["123456789012345678901234567890123456789"], "string"),
        (["1" + "0" * 5000], "string"),
        (["1", "0.1"], "double"),
        (["0.30000000000000004", "1e300"], "double"),
        (["12345678901234.567", "1"], "decimal(38,18)"),
        (["0.1", "9007199254740993"], "decimal(38,18)"),
        (["1234567890123456789012345678.123456"], "decimal(38,6)"),
        (["1234567890123456789012345678.12345678901"], "string"),
        (["1e400"], "string"),
        (["NaN", "1.5"], "double"),
        (['"2026-03-09"'], "date"),
        (['"2026-02-31"'], "string"),
        (['"2026-03-09T18:00:00.123456Z"', '"2026-03-09 18:00:00+01:00"'], "timestamp"),
        (['"2026-03-09T18:00:00.1234567Z"'], "string"),
        (['"2026-03-09"', '"2026-03-09T18:00:00"'], "timestamp"),
        (['"2026-03-09"', '"soon"'], "string"),
        (["null"], "string"),
        (["[]"], "array<string>"),
        (["[1]", "[2.5, null]"], "array<double>"),
        (['{"a b": 1}', '{"c": {"d": true}}'], "struct<`a b`:bigint,c:struct<d:boolean>>"),
        (['{"a": 1, "A": 2}'], "string"),
        (['{"x": 1}', '{"y": 2}', '{"z": 3.5}'], "map<string,double>"),
        (['{"x": 1, "u": 1}', '{"x": 2, "v": 1}', '{"x": 3, "u": 1}'], "struct<x:bigint,u:bigint,v:bigint>"),
        ([json.dumps({f"k{n}": n, f"k{n + 1}": "x"}) for n in range(60)], "map<string,string>"),
        (
            [json.dumps({f"k{n}": n for n in range(60)})] * 2,
            "struct<" + ",".join(f"k{n}:bigint" for n in range(60)) + ">",
        ),
    ],
)
def test_the_type_of_a_field_of_json(project, values, kind):
    path = project.root / "in" / "a.json"
    path.write_text("".join(f'{{"v": {value}}}\n' for value in values))
    new_bare_pipeline(project, "mine", sample=path)
    assert [one.type for one in parse_ddl(load_pipeline(project, "mine").sources["mine"].schema)] == [kind]


def test_records_of_a_topic_are_told_in_the_same_way():
    values = [b'{"v": 1,\n "w": 12345678901234567890}', b'{"v": "x"}', b"torn"]
    found, count = infer_record_columns(values, "topic x")
    assert (found.columns, count) == ("v STRING, w DECIMAL(38, 0)", 2)


def test_torn_lines_are_counted(project):
    path = project.root / "in" / "a.json"
    path.write_text('{"a": 1}\n{"a": \n\n{"a": 2}\n')
    written = new_bare_pipeline(project, "mine", sample=path)
    assert (written.columns, written.inferred_from) == ("a BIGINT", "2 objects; lines that are not JSON objects: 1")


def test_rows_of_another_width_are_counted(project):
    path = project.root / "in" / "a.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    written = new_bare_pipeline(project, "mine", sample=path)
    assert (written.columns, written.inferred_from) == ("a BIGINT, b BIGINT", "2 rows; rows without 2 fields: 1")


@pytest.mark.parametrize(
    ("content", "encoding", "spark"),
    [
        ("id,town\n1,Zürich\n", "latin-1", "ISO-8859-1"),
        ("id,town\n1,Zürich €1\n", "cp1252", "windows-1252"),
        ("id,town\n1,Zürich\n", "utf-16", "UTF-16"),
    ],
)
def test_the_encoding_of_a_csv_file(project, content, encoding, spark):
    path = project.root / "in" / "a.csv"
    path.write_bytes(content.encode(encoding))
    notes = new_bare_pipeline(project, "mine", sample=path).notes
    source = load_pipeline(project, "mine").sources["mine"]
    assert (source.schema, source.options) == ("id BIGINT, town STRING", {"header": True, "encoding": spark})
    # Bytes do not say which of the 8-bit encodings it is, a byte order mark does.
    assert len(notes) == (spark != "UTF-16") and all(
        f"{spark} is a guess" in note and "Zürich" in note for note in notes
    )


def test_it_is_said_why_a_column_is_text_although_most_of_its_values_are_not(project):
    path = project.root / "in" / "a.json"
    lines = ['{"n": 1, "at": {"zip": 7}, "tags": [1], "t": "a"}'] * 9
    lines.append('{"n": "many", "at": {"zip": {"code": 1}}, "tags": ["x"], "t": null}')
    path.write_text("\n".join(lines))
    assert new_bare_pipeline(project, "mine", sample=path).notes == (
        'n is STRING: a whole number 9 times, a text once ("many")',
        'at.zip is STRING: a whole number 9 times, an object once ({"code": 1})',
        'tags[] is STRING: a whole number 9 times, a text once ("x")',
    )
    text = (project.root / "jobs/mine/pipeline.yaml").read_text()
    assert '# n is STRING: a whole number 9 times, a text once ("many")' in text


@pytest.mark.parametrize(
    ("time", "form"),
    [
        ("2026-01-31T10:20:30.1234567Z", "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSS]XXX"),
        ("2026-01-31 10:20:30.123456789+01:00", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]XXX"),
        ("2026-01-31T10:20:30.1234567", "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSS]"),
        ("2026-01-31T10:20:30.12345678901Z", None),
    ],
)
def test_what_to_do_with_times_finer_than_a_microsecond(project, time, form):
    """As .NET writes them. The option is one with which the reader of the runs reads them."""
    json_file, csv_file = project.root / "in/a.json", project.root / "in/a.csv"
    json_file.write_text(json.dumps({"at": time}) + "\n" + json.dumps({"at": "2026-01-31T10:20:30Z"}))
    csv_file.write_text(f"id,at\n1,{time}\n")
    for name, file in (("of_json", json_file), ("of_csv", csv_file)):
        [note] = new_bare_pipeline(project, name, sample=file).notes
        assert note.startswith(f"at is STRING: times finer than a microsecond, such as {time}, are malformed in a TIME")
        option = "" if form is None else f'TIMESTAMP with options: {{timestampFormat: "{form}"}}, or '
        assert note.endswith(f"after the sixth: {option}`CAST(at AS TIMESTAMP)` in the transform")
    assert form is None or Ways.of({"timestampFormat": form}).read(time, "timestamp")[1] is None


def test_it_is_said_of_csv_too(project):
    path = project.root / "in" / "a.csv"
    path.write_text("id,zip\n" + "1,70173\n" * 3 + "2,01067\n")
    assert new_bare_pipeline(project, "mine", sample=path).notes == (
        'zip is STRING: a whole number 3 times, a text once ("01067")',
    )


_SAP = (
    "Beleg-Nr;Datum;Gebucht;;Betrag;Menge;Kurs;PLZ;\n"
    "1;03.04.2026;03.04.2026 10:20:30;x;1.234,56-;5;1,5;01067;\n"
    "2;31.01.2026;01.02.2026 00:00:01;;0,50-;1.200;2;70173;\n"
)


def _read_own(project, path: Path) -> list[dict[str, object]]:
    """The records of ``path`` as a run reads them with the spec that was written for it."""
    source = load_pipeline(project, "mine").sources["mine"]
    return read(path, source.schema, **parser_options(source))


def test_a_file_as_sap_writes_it(project):
    path = project.root / "in" / "a.csv"
    path.write_bytes(_SAP.replace("\n", "\r\n").encode("latin-1"))
    notes = new_bare_pipeline(project, "mine", sample=path).notes
    assert notes[:3] == (
        "dateFormat: dd.MM.yyyy is a guess from Datum; if that is wrong, correct the option",
        "timestampFormat: dd.MM.yyyy HH:mm:ss is a guess from Gebucht; if that is wrong, correct the option",
        "locale: de-DE is a guess from Betrag, Kurs; if that is wrong, correct the option",
    )
    first, second = _read_own(project, path)
    assert not first["_malformed"] and not second["_malformed"], "the header and its empty names are accepted"
    assert first["Datum"] == dt.date(2026, 4, 3) and first["Gebucht"] == dt.datetime(2026, 4, 3, 10, 20, 30, 0, dt.UTC)
    assert (first["Betrag"], second["Betrag"]) == (Decimal("-1234.56"), Decimal("-0.5"))
    assert (second["Menge"], second["Kurs"]) == (1200, 2), "a number of groups means what it does in the other columns"
    assert (first["_c3"], second["_c3"], first["PLZ"]) == ("x", None, "01067")
    assert "_c8" not in first, "a separator at each line's end is no column"


@pytest.mark.parametrize(
    ("texts", "type_", "options"),
    [
        (["31.12.2026"], "DATE", {"dateFormat": "dd.MM.yyyy"}),
        (["1.2.2026", "31.12.2026"], "DATE", {"dateFormat": "d.M.yyyy"}),
        (["01/02/2026", "31/12/2026"], "DATE", {"dateFormat": "dd/MM/yyyy"}),
        (["01/02/2026", "12/31/2026"], "DATE", {"dateFormat": "MM/dd/yyyy"}),
        (["31.12.2026 10:20"], "TIMESTAMP", {"timestampFormat": "dd.MM.yyyy HH:mm"}),
        (["1.234,5"], "DECIMAL(38, 18)", {"locale": "de-DE"}),
        (["1,234.5"], "DECIMAL(38, 18)", {"locale": "en-US"}),
        (["1\u202f234,5"], "DECIMAL(38, 18)", {"locale": "fr-FR"}),
        (["1'234.5"], "DECIMAL(38, 18)", {"locale": "de-CH"}),
        (["5-", "7"], "DECIMAL(38, 18)", {"locale": "en-US"}),
        (["31.12.2026", "x"], "STRING", {}),
        (["31.02.2026"], "STRING", {}),
        (["0,5", "007"], "STRING", {}),
        (["040-12345"], "STRING", {}),
        (["2026-12-31"], "DATE", {}),
        (["1.234"], "DOUBLE", {}),
    ],
)
def test_how_a_place_writes_dates_and_numbers(project, texts, type_, options):
    path = project.root / "in" / "a.csv"
    path.write_text("id;v\n" + "".join(f"{at};{text}\n" for at, text in enumerate(texts)))
    assert bool(new_bare_pipeline(project, "mine", sample=path).notes) == bool(options) or type_ == "STRING"
    source = load_pipeline(project, "mine").sources["mine"]
    assert source.schema == f"id BIGINT, v {type_}"
    assert source.options == {"header": True, "sep": ";", **options}
    assert not any(row["_malformed"] for row in _read_own(project, path))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("03/04/2026", "'03/04/2026' is a DATE with dateFormat: dd/MM/yyyy or MM/dd/yyyy"),
        ("3/4/2026 1:2", "'3/4/2026 1:2' is a TIMESTAMP with timestampFormat: d/M/yyyy H:m or M/d/yyyy H:m"),
        ("1,234", "'1,234' is a DECIMAL(38, 18) with locale: en-US or de-DE"),
    ],
)
def test_what_may_be_read_in_two_ways_is_text_and_named(project, text, note):
    path = project.root / "in" / "a.csv"
    path.write_text(f"id;v\n1;{text}\n")
    [told] = new_bare_pipeline(project, "mine", sample=path).notes
    assert told == f"v is STRING: {note}; set the one that is right, and the type"
    assert load_pipeline(project, "mine").sources["mine"].options == {"header": True, "sep": ";"}


def test_local_forms_beside_plain_ones(project):
    path = project.root / "in" / "a.csv"
    path.write_text("d;e;n;p;q\n31.12.2026;2026-12-31;1,5;2.5;1.234\n")
    notes = new_bare_pipeline(project, "mine", sample=path).notes
    source = load_pipeline(project, "mine").sources["mine"]
    assert source.schema == "d DATE, e DATE, n DECIMAL(38, 18), p STRING, q DECIMAL(38, 18)"
    assert "the numbers of p are STRING, as they are not written with locale: de-DE" in notes
    [row] = _read_own(project, path)
    assert (row["d"], row["e"], row["q"]) == (dt.date(2026, 12, 31), dt.date(2026, 12, 31), 1234)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
@pytest.mark.parametrize("ending", ["json", "csv"])
def test_a_file_in_a_wide_encoding_is_told_by_its_byte_order_mark(project, encoding, ending):
    path = project.root / "in" / f"a.{ending}"
    text = '{"id": 1, "town": "Zürich"}\n{"id": 2, "town": "鿿"}\n' if ending == "json" else "id,town\n1,Zürich\n2,鿿\n"
    path.write_bytes(text.encode(encoding))
    if encoding == "utf-16-le" or (ending, encoding) == ("csv", "utf-32"):
        with pytest.raises(UsageError, match="zero bytes"):
            new_bare_pipeline(project, "mine", sample=path)
        return
    assert new_bare_pipeline(project, "mine", sample=path).inferred_from is None
    source = load_pipeline(project, "mine").sources["mine"]
    assert (source.schema, source.options["encoding"]) == ("id BIGINT, town STRING", encoding.upper())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"a,b\n1,2,3\n4,5,6,7\n", "row 1 has 2, row 2 has 3"),
        (b"a,a\n1,2\n", "'a' is there twice"),
        (b"a\0,\0b\0\n\0", "UTF-16 without a byte order mark"),
    ],
)
def test_a_csv_file_that_tells_nothing_says_why(project, content, says):
    path = project.root / "in" / "a.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says) as refused:
        new_bare_pipeline(project, "mine", sample=path)
    assert refused.value.code == "CANNOT_INFER" and list_pipelines(project) == []


def test_a_pipeline_for_a_parquet_file(project):
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"a": pa.int32(), "b": pa.decimal128(10, 2), "c": pa.map_(pa.string(), pa.int64()), "d": pa.binary()}
    schema = pa.schema(list(kinds.items()))
    pq.write_table(schema.empty_table(), project.root / "in" / "x.parquet")
    new_bare_pipeline(project, "mine", sample=project.root / "in" / "x.parquet")
    kinds = [one.type for one in parse_ddl(load_pipeline(project, "mine").sources["mine"].schema)]
    assert kinds == ["int", "decimal(10,2)", "map<string,bigint>", "binary"]


def test_names_that_the_table_cannot_have_are_renamed_by_a_transform(project):
    path = project.root / "in" / "b.csv"
    path.write_text('Order No,order_no,"He said ""(x)""",2 b,plain-name,=\n1,2,3,4,5,6\n')
    new_bare_pipeline(project, "mine", sample=path)
    spec = load_pipeline(project, "mine")
    assert spec.transform == "transform.py" and read_transform(project, spec)[1] == []
    text = (project.root / "jobs/mine/transform.py").read_text()
    renames = ast.literal_eval(text[text.index("{") : text.index("}") + 1])
    assert renames == {"Order No": "order_no_2", 'He said "(x)"': "he_said_x", "2 b": "c_2_b", "=": "column"}


def test_types_of_parquet_that_spark_has_otherwise_or_not_at_all(project):
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"a": pa.uint8(), "b": pa.uint16(), "c": pa.uint32(), "d": pa.uint64(), "at": pa.timestamp("ns")}
    path = project.root / "in" / "x.parquet"
    pq.write_table(pa.schema(list(kinds.items())).empty_table(), path)
    written = new_bare_pipeline(project, "mine", sample=path)
    source = load_pipeline(project, "mine").sources["mine"]
    assert [one.type for one in parse_ddl(source.schema)] == [
        "smallint",
        "int",
        "bigint",
        "decimal(20,0)",
        "timestamp",
    ]
    assert written.notes == (), "times in nanoseconds are read where none is finer than a microsecond"
    pq.write_table(pa.table({"at": pa.array([1], pa.time64("us")), "span": pa.array([1], pa.duration("us"))}), path)
    told = new_bare_pipeline(project, "other", sample=path).notes
    assert told == ("a file such as this is quarantined whole: span is duration[us], the schema wants STRING",)
    assert f"    # {told[0]}\n    schema: " in (project.root / "jobs/other/pipeline.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("x.bin", "", "BAD_OPTIONS"),
        ("x.json", "", "CANNOT_INFER"),
        ("x.json", "torn", "CANNOT_INFER"),
        ("x.csv", '{"a": 1}\n', "CANNOT_INFER"),
        ("x.parquet", "no", "CANNOT_INFER"),
        ("x.xml", "<a><r/></a>", "CANNOT_INFER"),
        ("x.json", '{"a": 1, "A": 2}\n', "CANNOT_INFER"),
        (None, "", "NO_SUCH_FILE"),
    ],
)
def test_a_file_of_which_nothing_can_be_told_writes_nothing(project, file, content, code):
    path = project.root / "in" / (file or "nosuch.json")
    if file:
        path.write_text(content)
    with pytest.raises(UsageError) as refused:
        new_bare_pipeline(project, "mine", sample=path)
    assert refused.value.code == code and refused.value.fix
    assert list_pipelines(project) == [] and not (project.root / "dags").exists()


@pytest.mark.parametrize("kind", ["json", "csv", "text", "parquet", "orc"])
def test_a_bare_pipeline_of_each_format_is_sound(project, kind):
    new_bare_pipeline(project, "mine", kind)
    assert validate_pipelines(project, ["mine"], with_spark=False) == []


def test_the_advice_where_columns_cannot_be_told_works(project):
    path = project.root / "in" / "a.csv"
    path.write_text("a,b\n1,2,3\n4,5,6,7\n")
    with pytest.raises(UsageError) as refused:
        new_bare_pipeline(project, "mine", sample=path)
    advice = "tidegate new NAME --bare --format csv, and write path and columns in jobs/NAME/pipeline.yaml"
    assert advice in str(refused.value.fix)
    new_bare_pipeline(project, "mine", "csv")
    spec = project.root / "jobs/mine/pipeline.yaml"
    spec.write_text(spec.read_text().replace("data/inbox/mine", "in").replace("schema: infer", "schema: a INT, b INT"))
    source = load_pipeline(project, "mine").sources["mine"]
    assert (source.path, source.schema) == ("in", "a INT, b INT")


def test_a_bare_pipeline(project):
    new_bare_pipeline(project, "mine", "csv")
    source = load_pipeline(project, "mine").sources["mine"]
    assert (source.path, source.format, source.schema) == ("data/inbox/mine", "csv", "infer")
    assert (project.root / "data/inbox/mine").is_dir()
    assert validate_pipelines(project, ["mine"], with_spark=False) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('[\n  {"a": 1},\n  {"a": 2}\n', "the array does not end (line 4, column 1)"),
        ('{\n  "a": 1,\n  "b"\n}\n', "Expecting ':' delimiter (line 4, column 1)"),
        ('[\n  {"a": 1}\n  {"a": 2}\n]\n', "a comma or ] is missing (line 3, column 3)"),
        ('[\n  {\n"a": 1}\n]\nmore\n', "text after the array (line 5, column 1)"),
        ("[\n  1,\n  2\n]\n", "there is no object in it"),
        ("id,name\n1,Ann\n", "Expecting value (line 1, column 1)"),
    ],
)
def test_json_over_several_lines_that_cannot_be_taken_apart(project, content, told):
    path = project.root / "in" / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError) as refused:
        new_bare_pipeline(project, "mine", sample=path)
    assert refused.value.code == "CANNOT_INFER" and told in refused.value.message
    assert "--format" in refused.value.fix and not (project.jobs / "mine").exists()

"""A schema that was inferred once: kept with the checkpoint, carried over, and guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.partition_values import fits_value, infer_value_type
from tidegate.sources.files.scan import FilesScan, scan_files
from tidegate.spec.as_read import KeptSource, is_to_infer
from tidegate.spec.checks import check_pipeline
from tidegate.spec.models import FilesSource, PipelineSpec, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.birth import (
    as_read,
    changed_keys,
    fingerprint,
    keep_schemas,
    new_birth,
    read_birth,
    replace_birth,
    write_birth,
)

KEPT = "id BIGINT,`a b` STRUCT<x: INT>"


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return Project(tmp_path, ProjectSpec()).paths("orders")


def _spec(schema: str = "infer", **keys: Any) -> PipelineSpec:
    source = {"type": "files", "path": "data/inbox", "format": "json", "schema": schema, **keys}
    return PipelineSpec.read({"version": 1, "name": "orders", "sources": {"orders": source}})


def _keep(paths: PipelinePaths) -> None:
    write_birth(paths, new_birth(paths, _spec(), {"orders": {}}, {}))
    keep_schemas(paths, as_read(_spec(), paths), {"orders": KEPT})


def _changes(paths: PipelinePaths, spec: PipelineSpec) -> list[str]:
    birth = read_birth(paths)
    assert birth is not None
    return changed_keys(birth.fingerprint, fingerprint(as_read(spec, paths)))


def test_a_run_reads_with_the_kept_columns(paths: PipelinePaths) -> None:
    assert is_to_infer(as_read(_spec(), paths).sources["orders"])
    _keep(paths)
    source = as_read(_spec(), paths).sources["orders"]
    assert isinstance(source, KeptSource)
    assert (source.schema, source.path, source.format) == (KEPT, "data/inbox", "json")
    assert not is_to_infer(source)
    assert as_read(as_read(_spec(), paths), paths) == as_read(_spec(), paths)


def test_other_columns_in_the_spec_are_a_change_of_it(paths: PipelinePaths) -> None:
    _keep(paths)
    assert _changes(paths, _spec()) == []
    assert _changes(paths, _spec("id bigint, `a b` struct<x int>")) == []
    (change,) = _changes(paths, _spec("id STRING, `a b` STRUCT<x: INT>"))
    assert change == ('sources.orders.schema: "id bigint, `a b` struct<x:int>" -> "id string, `a b` struct<x:int>"')


def test_a_declared_schema_is_free_to_change(paths: PipelinePaths) -> None:
    write_birth(paths, new_birth(paths, _spec("id INT"), {"orders": {}}, {}))
    assert _changes(paths, _spec("id BIGINT")) == []
    assert type(as_read(_spec("id BIGINT"), paths).sources["orders"]) is FilesSource


@pytest.mark.parametrize("schema", ["infer", "id STRING"])
def test_a_new_checkpoint_keeps_them(paths: PipelinePaths, schema: str) -> None:
    """As repair begins one: with what was kept, or with the columns that the spec now says."""
    _keep(paths)
    spec = as_read(_spec(schema), paths)
    replace_birth(paths, new_birth(paths, spec, {"orders": {}}, {}))
    assert _changes(paths, _spec(schema)) == []
    birth = read_birth(paths)
    assert birth is not None
    assert birth.schemas == {"orders": KEPT if schema == "infer" else schema}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"type": "kafka", "topics": ["a"], "format": "json"}, "schema: infer is for files; records of a topic"),
        ({"type": "kafka", "topics": ["a"], "format": "text"}, "text has one column, value STRING"),
        ({"type": "kafka", "topics": ["a"], "format": "raw"}, "raw has one column, value BINARY"),
        ({"type": "files", "path": "a", "format": "text"}, "text has one column, value STRING"),
    ],
)
def test_where_there_is_nothing_to_infer(source: dict[str, Any], told: str) -> None:
    sources = {"orders": {**source, "schema": "Infer"}}
    spec = PipelineSpec.read({"version": 1, "name": "orders", "sources": sources})
    (finding,) = check_pipeline(spec)
    assert finding.message.startswith(told)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "0"], "INT"),
        (["1", None, ""], "INT"),
        (["2147483648", "1"], "BIGINT"),
        (["9223372036854775808"], "STRING"),
        (["07", "8"], "STRING"),
        (["+1"], "STRING"),
        (["2026-01-31", "2026-02-01"], "DATE"),
        (["2026-02-30"], "STRING"),
        (["2026-01-31", "1"], "STRING"),
        (["1.5"], "STRING"),
        ([None], "STRING"),
    ],
)
def test_types_of_folder_names(values: list[str | None], kind: str) -> None:
    assert infer_value_type(values) == kind


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ("07", "int", True), ("abc", "int", False), ("128", "tinyint", False), ("-128", "tinyint", True),
        (None, "int", True), ("2026-1-1", "date", True), ("2026", "date", False), ("2026-13-01", "date", False),
        ("soon", "date", False), ("soon", "string", True), ("1.5", "decimal(2,1)", True),
    ],
)  # fmt: skip
def test_values_of_folder_names_that_a_column_takes(value: str | None, kind: str, fits: bool) -> None:
    assert fits_value(value, kind) is fits


def test_a_folder_whose_name_does_not_fit_is_left_alone_and_named(tmp_path: Path, paths: PipelinePaths) -> None:
    for day in ("2026-01-01", "soon"):
        folder = tmp_path / "data/inbox" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("{}\n")
    source = FilesSource.read({"type": "files", "path": "data/inbox", "format": "json", "schema": "id INT, day DATE"})
    with open_ledger(paths) as ledger:
        scan: FilesScan = scan_files(Project(tmp_path, ProjectSpec()), paths, "orders", source, ledger)
    assert [entry.path for entry in scan.new] == ["data/inbox/day=2026-01-01/part.json"]
    (skipped,) = scan.skipped
    assert skipped["path"] == "data/inbox/day=soon/part.json"
    assert skipped["why"] == "its folder says day=soon, and day is DATE"

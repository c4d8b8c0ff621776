"""``table: {path: ...}``: the table stays where it is, and has its folder for itself."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.support.keyed import FakeLease
from tests.support.project import PipelineProject
from tidegate.runs.restart.repair_steps import set_tables_aside
from tidegate.spec.pipeline import load_pipeline, read_pipeline
from tidegate.state.lease import Lease

SPEC = """version: 1
name: {name}
sources:
  orders: {{type: files, path: {source}, format: json, schema: id BIGINT}}
table: {{path: {path}}}
"""


def write(root: Path, path: str, *, name: str = "orders", source: str = "data/inbox") -> PipelineProject:
    made = PipelineProject(root, name=name)
    made.create()
    made.write(f"jobs/{name}/pipeline.yaml", SPEC.format(name=name, path=path, source=source))
    return made


def faults(made: PipelineProject) -> list[str]:
    return [fault.message for fault in read_pipeline(made.project, made.name)[1]]


def test_the_paths_of_a_pipeline_follow_it(tmp_path: Path) -> None:
    made = write(tmp_path / "project", "../lake/orders")
    assert load_pipeline(made.project, "orders").table.path == "../lake/orders"
    assert made.project.paths("orders").table == tmp_path / "lake" / "orders"
    assert made.project.own_table("orders") == tmp_path / "project/data/warehouse/orders"


def test_without_it_the_table_lies_in_the_warehouse(tmp_path: Path) -> None:
    made = PipelineProject(tmp_path)
    made.create()
    spec = SPEC.format(name="orders", path="x", source="data/inbox").replace("table: {path: x}", "table: {keys: []}")
    made.write("jobs/orders/pipeline.yaml", spec)
    assert made.project.paths("orders").table == tmp_path / "data/warehouse/orders"
    assert made.project.paths("no_such_one").table == tmp_path / "data/warehouse/no_such_one"
    assert made.project.paths("../orders").table == tmp_path / "data/warehouse/../orders"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("data/warehouse", "holds the warehouse"),
        (".", "are inside of one another"),
        ("..", "are inside of one another"),
        ("data/state/orders/table", "and state"),
        ("data/quarantine/orders", "and quarantine"),
        ("jobs/orders/table", "and jobs"),
        ("data/inbox/table", "the path of source orders"),
        ("data", "are inside of one another"),
        ("s3a://lake/orders", "is a URI"),
        ('"lake/*"', "takes as a pattern"),
        ('""', "is empty"),
    ],
)
def test_a_folder_that_is_not_the_tables_own_is_refused(tmp_path: Path, path: str, said: str) -> None:
    [message] = faults(write(tmp_path, path))
    assert said in message


def test_two_pipelines_with_one_table_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path, "lake/orders")
    second = write(tmp_path, "lake/orders/.", name="again")
    assert "the table of pipeline again" in faults(first)[0]
    assert "the table of pipeline orders" in faults(second)[0]


def test_nor_may_it_be_the_place_of_another_pipeline_in_the_warehouse(tmp_path: Path) -> None:
    made = write(tmp_path, "data/warehouse/others")
    assert faults(made) == []
    other = PipelineProject(tmp_path, name="others")
    other.create()
    other.write("jobs/others/pipeline.yaml", SPEC.format(name="others", path="x", source="in").split("table:")[0])
    assert "the table of pipeline others" in faults(made)[0]


def test_it_may_be_its_own_place_in_the_warehouse(tmp_path: Path) -> None:
    made = write(tmp_path, "data/warehouse/orders")
    assert faults(made) == []
    assert made.project.paths("orders").table == made.project.own_table("orders")


def test_a_rebuild_keeps_the_old_table_beside_its_place(tmp_path: Path) -> None:
    made = write(tmp_path / "project", "../lake/orders")
    paths = made.project.paths("orders")
    (paths.table / "_delta_log").mkdir(parents=True)
    set_tables_aside(paths, cast(Lease, FakeLease()))
    [kept] = (tmp_path / "lake").iterdir()
    assert kept.name.startswith(".orders.")
    assert (kept / "_delta_log").is_dir()

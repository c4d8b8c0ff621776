"""What another engine leaves in the folder, where plain readers take it for rows: hidden by the next run, or named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.cut_log import clean_log
from tests.support.held import GOOD, Held, commands
from tests.support.kept import Kept
from tests.support.readers import read_agreed, read_with_duckdb
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.upkeep import find_left
from tidegate.runs.rollback import roll_back
from tidegate.spec.pipeline import load_pipeline
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_names
from tidegate.table.log.state import list_data_files, read_log
from tidegate.table.publish import replace
from tidegate.views.doctor import examine
from tidegate.views.status import project_status

NEXT = [{"id": n, "n": n} for n in (20, 21)]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A pipeline that has published ten rows in three versions, three of them quarantined records."""
    made = Held(tmp_path)
    with commands(lambda: made):
        made.run("R1", GOOD)
        made.run("R2", [{"id": n, "n": n} for n in (10, 11, 12)])
        made.malformed = 1
        made.run("R3", [{"id": 13, "n": 13}])
        made.run("R4", [{"id": 14, "n": 14}])
        made.malformed = 0
        yield made


ALL = [4, 5, 6, 7, 10, 11, 12, 13, 14]
CASES: dict[str, tuple[Callable[[DeltaTable], Any], list[int]]] = {
    "delete": (lambda table: table.delete("n = 5"), [n for n in ALL if n != 5]),
    "delete files": (lambda table: table.delete("n >= 10 and n <= 12"), [4, 5, 6, 7, 13, 14]),
    "update": (lambda table: table.update(updates={"n": "n + 100"}, predicate="n > 12"), [*ALL[:-2], 113, 114]),
    "compact": (lambda table: table.optimize.compact(), ALL),
    "checkpoint": (lambda table: table.create_checkpoint(), ALL),
    "all": (
        lambda table: (table.optimize.compact(), table.delete("n = 4"), table.create_checkpoint()),
        [n for n in ALL if n != 4],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("then", ["idle", "run"])
def test_plain_readers_see_what_the_log_counts_after_the_next_run(held: Held, case: str, then: str) -> None:
    change, expected = CASES[case]
    change(DeltaTable(str(held.paths.table)))
    assert len(read_with_duckdb(held.paths.table)) > len(expected)  # as it is, until then
    report = held.run("R5", *([NEXT] if then == "run" else []))
    assert held.rows() == sorted([*expected, 20, 21] if then == "run" else expected)
    assert read_agreed(held.paths.table)
    assert any("plain readers" in note and note.endswith(" now") for note in report["notes"]), report["notes"]
    spec = load_pipeline(held.project, "orders")
    left = find_left(held.paths, spec, gather_facts(held.paths.pinned(), spec))
    assert [one.describe() for _, _, one in left] == [[], []]
    assert not any("plain readers" in note for note in held.run("R6")["notes"])  # said once


def test_a_table_that_the_pipeline_has_not_written_is_left_alone(held: Held, tmp_path: Path) -> None:
    table = held.paths.table
    table.rename(tmp_path / "ours")
    for number in range(3):
        write_deltalake(str(table), pa.table({"id": [number], "n": [number]}), mode="append")
    DeltaTable(str(table)).delete("n = 1")
    before = sorted(table.rglob("*"))
    with pytest.raises(DisagreementError):
        held.run("R5", NEXT)
    assert sorted(table.rglob("*")) == before


def test_the_quarantine_table_too(held: Held) -> None:
    DeltaTable(str(held.paths.quarantine)).optimize.compact()
    assert len(read_with_duckdb(held.paths.quarantine)) == 4
    report = held.run("R5")
    assert held.quarantined() == ["2.0", "3.0"]
    assert any(note.startswith("the quarantine: another program, or a publish") for note in report["notes"])


@pytest.mark.parametrize("then", ["idle", "run"])
def test_what_cleaned_commits_removed_is_hidden_too(held: Held, then: str) -> None:
    """The commits that removed files are gone: the checkpoint has it, until the engine's retention is over."""
    table = held.paths.table
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).delete("n = 5")
    clean_log(table)
    held.run("R5", *([NEXT] if then == "run" else []))
    assert {path.name for path in table.glob("*.parquet")} == {file.path for file in list_data_files(table)}
    note = held.paths.looked_up_to("table").read_bytes()
    held.run("R6")
    assert held.paths.looked_up_to("table").read_bytes() == note


def test_commits_that_are_cleaned_away_during_the_look(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were listed, and are gone before they are read: what they removed is found all the same."""
    table, look = held.paths.table, replace.list_names
    DeltaTable(str(table)).optimize.compact()

    def list_and_clean(path: Path) -> list[str]:
        names = look(path)
        if path == table and not cleaned:
            cleaned.append(path)
            clean_log(table)
        return names

    cleaned: list[Path] = []
    monkeypatch.setattr(replace, "list_names", list_and_clean)
    held.run("R5", NEXT)
    held.run("R6")
    assert cleaned
    assert {path.name for path in table.glob("*.parquet")} == {file.path for file in list_data_files(table)}


def test_doctor_and_status_name_what_is_still_to_be_hidden(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(str(held.paths.table)).delete("n = 5")
    [finding] = [one for one in examine(held.project) if one.check == "table of orders"]
    assert not finding.ok and "plain readers still see them: 1 file, such as part-" in finding.found
    assert "tidegate maintain orders" in str(finding.fix)
    monkeypatch.setattr("tidegate.views.status._look_at_sources", lambda *given: None)
    [row] = project_status(held.project, "orders")
    assert f"the table: {finding.found}" in row["notes"]


def test_what_the_log_counts_again_stays(held: Held) -> None:
    table = DeltaTable(str(held.paths.table))
    table.delete("n >= 10 and n <= 12")
    table.restore(3)
    held.run("R5")
    assert held.rows() == ALL


def test_what_is_put_back_while_it_is_hidden_stays(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    table, removed = DeltaTable(str(held.paths.table)), storage.remove
    table.delete("n >= 10 and n <= 12")

    def remove(path: Path) -> None:
        if path.name.startswith("part-") and path.parent == held.paths.table:
            monkeypatch.setattr(storage, "remove", removed)
            table.restore(3)
        removed(path)

    monkeypatch.setattr(storage, "remove", remove)
    held.run("R5")
    assert held.rows() == ALL and read_agreed(held.paths.table)


def test_a_rollback_finds_the_rows_that_another_program_took_out(held: Held) -> None:
    version = read_log(held.paths.table).version
    DeltaTable(str(held.paths.table)).delete("n <= 12")
    held.run("R5")
    assert held.rows() == [13, 14]
    roll_back(held.project, "orders", version, None, "B1")
    assert held.rows() == ALL


def test_they_are_vacuumed_like_replaced_files(tmp_path: Path) -> None:
    kept = Kept(tmp_path, keep_versions="0 seconds", maintenance={"keep_versions": 0, "compact_below": 0})
    kept.publish([{"id": n, "city": "x", "n": n} for n in range(4)])
    kept.publish([{"id": 9, "city": "x", "n": 9}])
    DeltaTable(str(kept.paths.table)).delete("n = 9")
    kept.run()
    assert any(name.endswith(".replaced") for name in kept.on_disk())
    kept.maintain()
    assert kept.on_disk() == [file.path for file in list_data_files(kept.paths.table)]


def test_a_log_that_needs_its_checkpoint_is_named_by_every_report(held: Held) -> None:
    table = held.paths.table
    DeltaTable(str(table)).create_checkpoint()
    for version in range(2):
        (table / LOG_FOLDER / commit_name(version)).unlink()
    for run_id, arriving in (("R5", [NEXT]), ("R6", []), ("R7", [])):
        report = held.run(run_id, *arriving)
        [told] = [note for note in report["notes"] if "removed commits of the log" in note]
        assert "a reader of `**/*.parquet` takes that for rows" in told
    assert any(name.endswith(".parquet") for name in list_names(table))
    assert any("removed commits of the log" in one.found for one in examine(held.project) if not one.ok)


def test_change_files_of_another_program_are_named_as_long_as_they_are_there(held: Held) -> None:
    table = DeltaTable(str(held.paths.table))
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    table.update(updates={"n": "n + 100"}, predicate="n = 14")
    for run_id in ("R5", "R6"):
        assert any("below _change_data" in note for note in held.run(run_id)["notes"])
    assert list((held.paths.table / "_change_data").rglob("*.parquet"))

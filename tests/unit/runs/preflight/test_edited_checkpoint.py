"""A checkpoint whose files were edited, torn, exchanged or copied over one another: found before Spark starts, and not
used any more; or it changes nothing that is read.

The checkpoints are as Spark 4.2 leaves them, with the checksum files that Hadoop keeps beside.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tests.support.staged import make_paths
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import offsets as kafka
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFiles, read_given
from tidegate.state.birth import read_birth, replace_birth
from tidegate.state.checkpoint import CheckpointState, files_between, hadoop_checksum
from tidegate.state.seal import CheckpointFiles, allow_edits, digest_of, find_edited, read_seal, set_seal
from tidegate.state.topics import TopicPartition

FILES = "  f: {type: files, path: data/inbox, format: csv, schema: value STRING}\ntransform: transform.sql\n"


class Aged:
    """A pipeline on files and Kafka after three runs, with a fourth batch planned by a driver that died then.

    ``killed``: the whole run died with it, so that its batch was never sealed.
    """

    def __init__(self, root: Path, broker: FakeBroker) -> None:
        self.project: Project = make_project(root, FILES)
        self.paths: PipelinePaths = self.project.paths(NAME)
        self.spec: PipelineSpec = load_pipeline(self.project, NAME)
        self.spark = FakeSpark(broker)
        (self.paths.job / "transform.sql").write_text("SELECT value FROM s UNION ALL SELECT value FROM f")
        (root / "data/inbox").mkdir(parents=True)
        for number in range(4):
            (root / f"data/inbox/{number}.csv").write_text("a\n")
            broker.end["t"] = {0: 100 * number + 100, 1: 10 * number}
            self.spark.stops = "planned" if number == 3 else ""
            try:
                run_pipeline(self.project, NAME, f"r{number}", submit=self.spark)
            except TryAgainError:
                assert number == 3
        self.spark.stops = ""
        for path in self.checkpoint_files():
            path.with_name(f".{path.name}.crc").write_bytes(hadoop_checksum(path.read_bytes()))
        self.facts().check()

    def checkpoint_files(self) -> list[Path]:
        """Every file of the checkpoint but the hidden ones."""
        return sorted(p for p in self.paths.checkpoint.rglob("*") if p.is_file() and not p.name.startswith("."))

    def facts(self) -> Looked:
        return Looked(gather_facts(self.paths, self.spec))

    def unseal(self, *batches: int) -> None:
        """As a run leaves it that was killed before it could seal these batches."""
        (path,) = self.paths.seals.glob("*/*.json")
        value = json.loads(path.read_bytes())
        for batch in batches:
            value["files"] = {name: kept for name, kept in value["files"].items() if Path(name).name != str(batch)}
        path.write_bytes(storage.dump_json(value))


class Looked:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def check(self) -> None:
        """Raises why the checkpoint is ignored, or what a run would be refused with."""
        check_agreement(self.facts, NAME)
        if self.facts.unusable is not None:
            raise self.facts.unusable.reason

    def find_code(self) -> str | None:
        """The code of what is wrong with the checkpoint, or None."""
        try:
            self.check()
        except DisagreementError as error:
            assert error.exit_code == 78 and error.fix is not None and "tidegate repair" in error.fix
            return error.code
        return None


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker({"t": {0: 0, 1: 0}}, {"t": {0: 0, 1: 0}})
    monkeypatch.setattr(kafka, "Brokers", broker)
    return broker


@pytest.fixture
def aged(tmp_path: Path, broker: FakeBroker) -> Aged:
    return Aged(tmp_path / "p", broker)


FOUND = {"CHECKPOINT_DIVERGED", "CHECKPOINT_TORN"}


def edits_of(data: bytes) -> Iterator[bytes]:
    """Every number made one more and one less, every 31st byte flipped or zeroed, and cuts."""
    for found in re.finditer(rb"\d+", data):
        for step in (1, -1):
            changed = str(int(found[0]) + step).encode()
            yield data[: found.start()] + changed + data[found.end() :]
    for at in range(0, len(data), 31):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        yield data[:at] + b"\0" + data[at + 1 :]
    for at in (0, 1, len(data) // 2, len(data) - 1):
        yield data[:at]
    yield bytes(len(data))
    yield data + b"\n"


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "the last batches not sealed"])
def test_every_edit_is_found(aged: Aged, sealed: bool) -> None:
    """Sealed by the digest; what a killed run could not seal by Hadoop's checksum."""
    if not sealed:
        aged.unseal(2, 3)
    tried = 0
    for path in aged.checkpoint_files():
        whole = path.read_bytes()
        for data in dict.fromkeys(edits_of(whole)):
            if data != whole:
                path.write_bytes(data)
                assert aged.facts().find_code() in FOUND, (path, data)
                tried += 1
        path.write_bytes(whole)
    assert tried > 300
    aged.facts().check()


def copies(aged: Aged) -> Iterator[tuple[Path, Path]]:
    """Every file of the checkpoint with every other of its folder."""
    for one, two in itertools.permutations(aged.checkpoint_files(), 2):
        if one.parent == two.parent:
            yield one, two


def copy_over(one: Path, two: Path) -> None:
    """With its checksum, so that Spark would not notice either."""
    shutil.copy(one, two)
    shutil.copy(one.with_name(f".{one.name}.crc"), two.with_name(f".{two.name}.crc"))


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "the last batches not sealed"])
def test_every_copy_over_another_is_found(aged: Aged, tmp_path: Path, sealed: bool) -> None:
    """Without a seal the numbers and files tell: of manifest, ledger, note of the publish, and table."""
    if not sealed:
        aged.unseal(2, 3)
    kept = shutil.copytree(aged.paths.checkpoint, tmp_path / "kept")
    tried = 0
    for one, two in copies(aged):
        if one.read_bytes() == two.read_bytes():
            continue
        copy_over(one, two)
        if sealed or (one.name, two.name, one.parent.name) != ("2", "3", "offsets"):
            assert aged.facts().find_code() in FOUND, (one, two)
        else:  # the planned batch is the last one again: see below
            aged.facts().check()
        shutil.rmtree(aged.paths.checkpoint)
        shutil.copytree(kept, aged.paths.checkpoint)
        tried += 1
    assert tried == 36, "12 of offsets, 12 of each source; the commits of a query without state are all alike"
    aged.facts().check()


def test_a_copy_as_one_more_batch(aged: Aged) -> None:
    """An older batch planned again would go backwards; the last one again reads nothing."""
    offsets = aged.paths.checkpoint / "offsets"
    aged.unseal(3)
    for older in ("0", "1"):
        copy_over(offsets / older, offsets / "3")
        assert aged.facts().find_code() == "CHECKPOINT_DIVERGED"
    copy_over(offsets / "2", offsets / "3")
    aged.facts().check()
    given = read_given(aged.paths.checkpoint, 3)
    assert given["f"].links == []
    assert given["s"].ends and given["s"].begins == given["s"].ends
    run_pipeline(aged.project, NAME, "last", submit=aged.spark)
    assert set(aged.spark.staged.values()) == {1} and aged.spark.staged.total() == 400 + 30


def test_every_edit_of_a_batch_file_is_found(aged: Aged) -> None:
    """Of the last batch, and of the planned one: by the digest in it."""
    files = BatchFiles(aged.paths.checkpoint, "s")
    for number in (2, 3):
        path = files.path(number)
        whole = path.read_bytes()
        for data in dict.fromkeys(edits_of(whole)):
            if data != whole:
                path.write_bytes(data)
                assert aged.facts().find_code() == "CHECKPOINT_TORN", (path, data)
        path.unlink()
        assert aged.facts().find_code() == "CHECKPOINT_TORN"
        path.write_bytes(whole)
    shutil.copy(files.path(2), files.path(3))
    assert aged.facts().find_code() == "CHECKPOINT_TORN"


@pytest.mark.parametrize("owed", [False, True], ids=["published", "staged"])
def test_a_new_checkpoint_for_edited_offsets(aged: Aged, broker: FakeBroker, owed: bool) -> None:
    """Of both kinds of sources: each record is read once, though Spark would have read some twice."""
    aged.spark.stops = "staged" if owed else ""
    if owed:
        with pytest.raises(TryAgainError):
            run_pipeline(aged.project, NAME, "r4", submit=aged.spark)
    else:
        run_pipeline(aged.project, NAME, "r4", submit=aged.spark)
    aged.spark.stops = ""
    path = aged.paths.checkpoint / "offsets/3"
    path.write_text(path.read_text().replace('"logOffset":3', '"logOffset":2'))
    broker.end["t"] = {0: 500, 1: 40}
    report = run_pipeline(aged.project, NAME, "r5", submit=aged.spark)
    (note,) = [note for note in report["notes"] if "CHECKPOINT_DIVERGED" in note]
    assert "offsets/3 does not hold what it held" in note
    assert set(aged.spark.staged.values()) == {1} and aged.spark.staged.total() == 500 + 40
    assert run_pipeline(aged.project, NAME, "r6", submit=aged.spark)["outcome"] == "nothing_new"


def test_a_query_with_state_is_rebuilt(aged: Aged) -> None:
    birth = read_birth(aged.paths)
    assert birth is not None
    replace_birth(aged.paths, replace(birth, state=[{"operator": "Aggregate", "keys": [], "values": []}]))
    path = aged.paths.checkpoint / "commits/2"
    path.write_text('v1\n{"nextBatchWatermarkMs":9}')
    with pytest.raises(DisagreementError) as told:
        repair_pipeline(aged.project, NAME, dry_run=False)
    assert told.value.code == "CHECKPOINT_DIVERGED" and "--rebuild" in str(told.value.fix), str(told.value)
    repair_pipeline(aged.project, NAME, dry_run=False, rebuild=True)
    aged.facts().check()


def test_overwritten_by_a_process_that_came_too_late(aged: Aged) -> None:
    """Spark's rename looks and then overwrites: a frozen driver puts its older plan over its successor's, which is
    staged, before anybody could seal it."""
    aged.spark.stops = "staged"
    with pytest.raises(TryAgainError):
        run_pipeline(aged.project, NAME, "r4", submit=aged.spark)
    aged.unseal(3)
    path = aged.paths.checkpoint / "offsets/3"
    path.write_bytes(path.read_bytes().replace(b's:{"logOffset":3', b's:{"logOffset":2'))
    path.with_name(".3.crc").write_bytes(hadoop_checksum(path.read_bytes()))
    with pytest.raises(
        DisagreementError, match=r"offsets 300 to 300 of topic t partition 0 .* its manifest has 300 to 400"
    ):
        aged.facts().check()


def test_the_tables_log_is_asked_as_well(aged: Aged) -> None:
    """Seal and checkpoint of another time line of the same query: numbers fit, positions do not."""
    shutil.rmtree(aged.paths.seals)
    (note,) = aged.paths.published.glob("*.json")
    value = json.loads(note.read_bytes())
    assert value["positions"] == {"s": {"t": {"0": 300, "1": 20}}}
    note.write_bytes(storage.dump_json({**value, "positions": {}}))
    files = BatchFiles(aged.paths.checkpoint, "s")
    last = files.read(2)
    files.rewrite(replace(last, ends={**last.ends, TopicPartition("t", 0): 250}))
    with pytest.raises(DisagreementError, match=r"the table.s log has up to 300"):
        aged.facts().check()


def test_a_compacted_list_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sources/f"
    folder.mkdir(parents=True)
    lines = [json.dumps({"path": f"file:///in/{n}", "timestamp": 1, "batchId": n}) for n in range(300)]
    (folder / "299.compact").write_text("\n".join(["v1", *lines]))
    parsed = 0
    loads = json.loads

    def count(text: bytes) -> object:
        nonlocal parsed
        parsed += 1
        return loads(text)

    monkeypatch.setattr("tidegate.state.checkpoint.json.loads", count)
    assert files_between(tmp_path, "f", -1, 299) == [f"/in/{n}" for n in range(300)]
    assert parsed == 300


def test_a_seal_from_before_an_edit_does_not_replace_the_one_that_allows_it(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    checkpoint = CheckpointState(True, "q", last_offset=0, last_commit=0)
    old, new = (CheckpointFiles({"offsets/0": digest_of(data)}) for data in (b"old", b"new"))
    set_seal(paths, checkpoint, replace(old, digests={**old.digests, "metadata": "m"}), {})
    allow_edits(paths, checkpoint, old, {"offsets/0": b"new"})
    set_seal(paths, checkpoint, old, {})  # by a process that slept over it
    assert find_edited(new, read_seal(paths, "q")) == []
    set_seal(paths, checkpoint, new, read_seal(paths, "q"))
    set_seal(paths, checkpoint, old, {})
    assert find_edited(new, read_seal(paths, "q")) == []

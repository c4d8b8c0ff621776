"""Objects of a real S3 server as sources, read by real Spark drivers with what a user has: the environment."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.object_servers import Bucket, folder_of, make_bucket, running_s3_server
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed
from tests.support.sweep import sweep
from tidegate.core import storage
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.core.storage import ObjectPath, stores, user_objects
from tidegate.core.storage.faults import ObjectChangedError
from tidegate.core.storage.user_objects import StoredObject, list_below, look_at
from tidegate.sources.kafka.offsets import find_bounds
from tidegate.sources.readers.links import Pointer
from tidegate.spark.driver.submit import SubmitPlan, run_spark_submit
from tools.object_servers import S3Server
from tools.processes import wait_until

if TYPE_CHECKING:
    from tests.support.topics import Topics

_STEPS_OF_A_RUN = 100
"""A run with one new file takes more."""


class StoredSource(PipelineProject):
    """A project whose sources are in a bucket."""

    def make(self, bucket: Bucket, sources: str, transform: str = "") -> StoredSource:
        """Write the project."""
        self.bucket = bucket
        self.create()
        spec = f"version: 1\nname: orders\nschedule: null\nsources:\n{sources}"
        self.write("jobs/orders/pipeline.yaml", spec + ("transform: transform.py\n" if transform else ""))
        if transform:
            self.write("jobs/orders/transform.py", transform)
        return self

    def put(self, key: str, data: bytes) -> None:
        """Write an object whole, as any program does."""
        obstore.put(self.bucket.client, key, data)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The rows on which all readers agree."""
        return sorted(tuple(row[one] for one in columns) for row in read_agreed(self.table))

    def quarantined(self) -> list[tuple[str, str, str]]:
        """Each record in quarantine: its text, its position, why."""
        return sorted((row["raw"] or "", row["position"], row["detail"]) for row in read_agreed(self.quarantine))

    def run_with(self, before: Callable[[], None]) -> dict[str, Any]:
        """A run in this process, with a Spark driver before which something happens."""

        def submit(plan: SubmitPlan) -> int:
            before()
            return run_spark_submit(plan)

        return self.run(submit=submit)


def lines(*ids: int) -> bytes:
    return b"".join(b'{"id": %d}\n' % one for one in ids)


def test_objects_of_every_kind_are_read_once(tmp_path: Path, s3_bucket: Bucket, s3_server: S3Server) -> None:
    url = s3_bucket.url
    project = StoredSource(tmp_path).make(
        s3_bucket,
        f'  lines: {{type: files, path: {url}/in/lines, format: json, schema: "id BIGINT, day DATE"}}\n'
        f'  table: {{type: files, path: "{url}/in/tables/*/*.parquet", format: parquet, schema: "id BIGINT"}}\n'
        f'  names: {{type: files, static: true, path: {url}/names, format: csv, schema: "id BIGINT, name STRING"}}\n',
        "def transform(lines, table, names):\n"
        "    return lines.select('id').union(table.select('id')).join(names, 'id', 'left')\n",
    )
    project.put("names/a.csv", b"1,one\n2,two\n")
    project.put("in/lines/day=2026-01-01/x[1] ä.json.gz", gzip.compress(lines(1, 2)))
    project.put("in/lines/day=2026-01-02/b.json", lines(3) + b"no json\n")
    project.put("in/lines/day=2026-01-02/cut.json.gz", gzip.compress(lines(*range(10, 2000)))[:-9])
    project.put("in/lines/_hidden.json", lines(99))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [4, 5]}), sink)
    project.put("in/tables/2026/a.parquet", sink.getvalue().to_pybytes())
    report = project.run()
    damaged = [(one, None) for one in range(10, 2000)]
    found = project.rows("id", "name")
    assert [one for one in found if one[0] < 10] == [(1, "one"), (2, "two"), (3, None), (4, None), (5, None)]
    assert {one for one in found if one[0] >= 10} <= set(damaged)  # the whole lines before its damage
    [(_, position, why), (raw, place, _)] = project.quarantined()
    assert json.loads(position) == {"file": f"{url}/in/lines/day=2026-01-02/cut.json.gz"}
    assert "breaks off" in why
    assert (raw, json.loads(place)) == ("no json", {"file": f"{url}/in/lines/day=2026-01-02/b.json", "line": 2})
    assert [one["path"] for one in report["sources"]["lines"]["skipped"]] == [f"{url}/in/lines/_hidden.json"]

    project.put("in/lines/day=2026-01-02/b.json", lines(3) + b"no json\n")  # the same bytes have the same ETag
    requests = s3_server.count_requests(s3_bucket.name)
    assert project.run()["outcome"] == "nothing_new"
    assert requests.counts() == {"ListObjectsV2": 2}  # a list of each stream
    project.put("in/lines/day=2026-01-02/b.json", lines(7))
    report = project.run()
    [changed] = report["sources"]["lines"]["changed"]
    assert (changed["path"], changed["how"]) == (f"{url}/in/lines/day=2026-01-02/b.json", "was rewritten")
    assert project.rows("id", "name") == found


@pytest.fixture
def versioned_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket that keeps what is replaced and removed."""
    return make_bucket(s3_server, monkeypatch, versioned=True)


def test_what_is_replaced_or_removed_before_it_is_read(tmp_path: Path, versioned_bucket: Bucket) -> None:
    url = versioned_bucket.url
    source = f'  orders: {{type: files, path: {url}/in, format: json, schema: "id BIGINT"}}\n'
    project = StoredSource(tmp_path).make(versioned_bucket, source)
    for name in ("same", "other"):
        project.put(f"in/{name}.json", lines(1 if name == "same" else 2))
    report = project.run_with(lambda: project.put("in/other.json", lines(3, 4)))
    assert report["rows"]["read"] == 3
    assert project.rows("id") == [(1,), (3,), (4,)]
    assert project.run()["outcome"] == "nothing_new"  # it was read as it is

    project.put("in/gone.json", lines(5))
    project.put("in/more.json", lines(6))
    with pytest.raises(TryAgainError, match=f"vanished before it was read: {url}/in/gone.json") as caught:
        project.run_with(lambda: obstore.delete(versioned_bucket.client, "in/gone.json"))
    assert caught.value.code == "FILE_VANISHED"
    project.run()
    assert project.rows("id") == [(1,), (3,), (4,), (6,)]
    [(_, position, why)] = project.quarantined()
    assert (json.loads(position), why) == ({"file": f"{url}/in/gone.json"}, "vanished before it was read")

    obstore.delete(versioned_bucket.client, "in/same.json")  # by a marker: its bytes stay
    assert project.run()["sources"]["orders"]["vanished"] == [f"{url}/in/same.json"]


@pytest.mark.parametrize("fixture", ["s3_bucket", "versioned_bucket", "azure_container"])
def test_a_reader_gets_the_version_that_was_listed_or_none(request: pytest.FixtureRequest, fixture: str) -> None:
    bucket: Bucket = request.getfixturevalue(fixture)
    uri = f"{bucket.url}/in/a.json"
    obstore.put(bucket.client, "in/a.json", b"listed")
    assert (obstore.head(bucket.client, "in/a.json")["version"] is not None) == (fixture == "versioned_bucket")
    pointer = Pointer.of(uri, list_below(ObjectPath(f"{bucket.url}/in"))["a.json"])
    assert pointer.open().read() == b"listed"
    obstore.put(bucket.client, "in/a.json", b"newer!")
    with pytest.raises(ObjectChangedError, match="was replaced since it was listed"):
        pointer.open().read()
    obstore.delete(bucket.client, "in/a.json")
    assert (look_at(uri), list_below(ObjectPath(bucket.url))) == (None, {})
    with pytest.raises(OSError, match=r"was re(mov|plac)ed") as caught:
        pointer.open().read()
    # Azurite says that the condition does not hold.
    assert isinstance(caught.value, FileNotFoundError | ObjectChangedError)
    if fixture != "azure_container":  # there each write has an ETag of its own
        obstore.put(bucket.client, "in/a.json", b"listed")
        assert pointer.open().read() == b"listed"


def test_a_look_before_the_first_run(tmp_path: Path, s3_bucket: Bucket) -> None:
    url = s3_bucket.url
    source = f"  orders: {{type: files, path: {url}/in, format: json, schema: infer}}\n"
    project = StoredSource(tmp_path).make(s3_bucket, source)
    project.put("in/a.json", b'{"id": 1, "name": "x"}\nno json\n')
    assert project.report("plan", "orders")["sources"]["orders"]["files"] == 1
    tried = project.report("try", "orders")
    assert [row["id"] for row in tried["rows"]] == [1]
    [aside] = tried["set_aside"]
    assert aside["position"] == {"file": f"{url}/in/a.json", "line": 2}
    project.tidegate("validate", "orders")
    project.run()
    assert project.rows("id", "name") == [(1, "x")]


def test_no_such_bucket(tmp_path: Path, s3_bucket: Bucket) -> None:
    source = '  orders: {type: files, path: s3://no-such-bucket-here/in, format: json, schema: "id BIGINT"}\n'
    project = StoredSource(tmp_path).make(s3_bucket, source)
    with pytest.raises(UsageError, match="s3://no-such-bucket-here refused") as caught:
        project.run(submit=run_spark_submit)
    assert caught.value.code == "STORE_REFUSED"


@pytest.mark.parametrize("fixture", ["s3_bucket", "azure_container"])
def test_a_list_and_a_look_identify_an_object_alike(request: pytest.FixtureRequest, fixture: str) -> None:
    bucket: Bucket = request.getfixturevalue(fixture)
    obstore.put(bucket.client, "in/a b.json", b"1")
    listed = list_below(ObjectPath(f"{bucket.url}/in"))
    assert listed == {"a b.json": look_at(f"{bucket.url}/in/a b.json")}
    assert look_at(f"{bucket.url}/in/absent") is None


@pytest.mark.parametrize("fixture", ["s3_bucket", "azure_container"])
def test_a_list_begins_after_a_key(request: pytest.FixtureRequest, fixture: str) -> None:
    bucket: Bucket = request.getfixturevalue(fixture)
    keys = ["!", "%41", "1.json", "2 ä.json", "A=1/b.json", "a.json"]
    for key in keys:
        obstore.put(bucket.client, f"in/{key}", b"1")
    obstore.put(bucket.client, "in2/b", b"1")
    for number, key in enumerate(keys):
        assert list(list_below(ObjectPath(f"{bucket.url}/in"), key)) == keys[number + 1 :]


@pytest.mark.parametrize("fixture", ["s3_bucket", "azure_container"])
def test_folders_with_odd_names_are_listed_by_themselves(
    request: pytest.FixtureRequest, fixture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket: Bucket = request.getfixturevalue(fixture)
    for module in (stores, user_objects):
        monkeypatch.setattr(module, "PAGE_KEYS", 4)
    monkeypatch.setattr(user_objects, "_OF_A_LARGE_FOLDER", 2)
    for folder in ("", "!/", "a/", "a b/", "x%2Fy/", "[1] ä/", "𝄞/k=v/+&@/", "𝄞/k=v/~#{}^/", "𝄞/m/"):
        for number in range(5):
            obstore.put(bucket.client, f"in/{folder}{number}.json", b"1")
    obstore.put(bucket.client, "in2/b", b"1")
    if isinstance(
        bucket.server, S3Server
    ):  # the empty object that a console makes for a folder, with a slash at the end
        for name in ("a", "𝄞/k=v", "𝄞/m"):
            os.setxattr(
                folder_of(ObjectPath(f"{bucket.url}/in/{name}")), "user.etag", b"d41d8cd98f00b204e9800998ecf8427e"
            )
    folder = ObjectPath(f"{bucket.url}/in")
    for below in (folder, folder / "𝄞", ObjectPath(bucket.url)):
        prefix = f"{below.key}/".lstrip("/")
        pages = bucket.client.list(prefix or None)
        plain = {one["path"].removeprefix(prefix): StoredObject.of(one) for page in pages for one in page}
        assert list_below(below) == plain


def test_the_store_has_as_many_requests_as_are_counted(s3_bucket: Bucket, s3_server: S3Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        for day, number in (("day=1", 1100), ("day=2", 900), ("day=3", 3)):
            keys = [f"in/{day}/{one}.json" for one in range(number)]
            list(pool.map(lambda key: obstore.put(s3_bucket.client, key, b"1"), keys))
    requests, before = s3_server.count_requests(s3_bucket.name), storage.count_requests()
    assert len(list_below(ObjectPath(f"{s3_bucket.url}/in"))) == 2003
    assert requests.counts() == {"ListObjectsV2": 6}  # the first page, the folders, and of these two, one and one
    assert storage.count_requests() - before == 6


def test_a_run_lists_only_what_is_new(tmp_path: Path, s3_bucket: Bucket) -> None:
    keys = f'path: {s3_bucket.url}/in, format: json, schema: "id BIGINT", start: now, list_all_every: 1 day'
    project = StoredSource(tmp_path).make(s3_bucket, f"  orders: {{type: files, {keys}}}\n")
    for number in range(1100):  # two pages
        project.put(f"in/2026-{number:04}.json", lines(-1))
    project.run()
    assert project.run()["requests"] == {"ingest": 1}
    project.put("in/2026-2000.json", lines(1))
    assert project.run()["outcome"] == "published"
    project.run()  # lists for a last time what the one before has taken
    project.put("in/2026-1500.json", lines(2))
    late = project.run()
    assert (late["outcome"], late["requests"]) == ("nothing_new", {"ingest": 1})
    spec = project.root / "jobs/orders/pipeline.yaml"
    spec.write_text(spec.read_text().replace("1 day", "1 second"))
    found = project.run()
    assert found["outcome"] == "published"
    assert any("2026-1500.json), with names that sort before some that were taken" in note for note in found["notes"])
    assert project.rows("id") == [(1,), (2,)]
    assert project.run()["requests"] == {"ingest": 2}


def test_a_run_looks_at_what_the_server_has_reported(
    tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = topics.create(partitions=2)
    with running_s3_server(tmp_path_factory.mktemp("notifying"), events=f"{topics.address}/{topic}") as server:
        bucket = make_bucket(server, monkeypatch)
        keys = f"path: {bucket.url}/in, list_all_every: 1 day, notifications: {{topic: {topic}}}"
        sources = f'  orders: {{type: files, {keys}, format: json, schema: "id BIGINT", start: now}}\n'
        project = StoredSource(tmp_path).make(bucket, sources)
        monkeypatch.setenv("TIDEGATE__KAFKA__BOOTSTRAP_SERVERS", topics.address)

        def count_messages() -> int:
            return sum(find_bounds(project.project.spec.kafka, topic)[2].values())

        project.put("in/old.json", lines(-1))
        assert wait_until(lambda: count_messages() == 2, 20)  # the server begins with one of its own
        project.run()
        assert project.run()["requests"] == {}
        requests = server.count_requests(bucket.name)
        for number, name in enumerate(("a b.json", "x%2Fy+ä.json", "sub/no.json", "day=1/𝄞 [1].json")):
            project.put(f"in/{name}", lines(number))
        project.put("elsewhere/no.json", lines(9))
        assert wait_until(lambda: count_messages() == 7, 20)
        topics.send(topic, ["no message"])
        report = project.run()
        asked = requests.counts()
        # One may be either of two objects, and where one is absent, the bucket is looked for.
        assert (asked["HeadObject"], asked["ListObjectsV2"]) == (5, 1)
        assert project.rows("id") == [(0,), (1,), (3,)]
        assert f"1 message in topic {topic} is not an event notification" in " ".join(report["notes"])
        obstore.delete(bucket.client, "in/old.json")
        requests.mark()
        assert project.run()["outcome"] == "nothing_new"
        assert requests.counts() == {}


def test_objects_are_read_again_for_a_refresh_unless_they_changed(tmp_path: Path, s3_bucket: Bucket) -> None:
    url = s3_bucket.url
    source = f'  orders: {{type: files, path: {url}/in, format: json, schema: "id BIGINT, day DATE"}}\n'
    project = StoredSource(tmp_path).make(s3_bucket, f"{source}table: {{partition_by: [day]}}\n")
    project.put("in/day=2026-01-01/a.json", lines(1))
    project.put("in/day=2026-01-02/b.json", lines(2))
    project.put("in/day=2026-01-02/cut.json.gz", gzip.compress(lines(3))[:-4])
    project.run()
    before = project.rows("id", "day")
    refreshed = project.report("refresh", "orders")
    assert refreshed["outcome"] == "published"
    assert project.rows("id", "day") == before
    project.put("in/day=2026-01-02/b.json", lines(4))
    error = project.report("refresh", "orders", expect=66)["error"]
    assert f"{url}/in/day=2026-01-02/b.json was rewritten after it was read" in error["message"]
    project.put("in/day=2026-01-02/b.json", lines(2))  # as from an earlier version
    project.report("refresh", "orders", "--dry-run")
    project.put("in/day=2026-01-02/b.json", lines(4))
    project.tidegate("acknowledge", "orders", "--reason", "test")
    assert project.report("status", "orders")[0]["changed"] == []
    assert project.rows("id", "day") == before


def test_objects_are_read_once_whenever_a_run_is_killed(tmp_path: Path, s3_bucket: Bucket) -> None:
    source = f'  orders: {{type: files, path: {s3_bucket.url}/in, format: json, schema: "id BIGINT"}}\n'
    project = StoredSource(tmp_path / "project").make(s3_bucket, source)
    offered = [0]
    project.put("in/0.json", lines(0))
    project.tidegate("run", "orders", fault="1000000|kill")
    steps = project.steps()
    [first] = [number for number, step in enumerate(steps, 1) if " symlink " in step]
    for number in sorted({first, first + 1, *sweep(_STEPS_OF_A_RUN, 3)[1:]}):
        offered.append(number)
        project.put(f"in/{number}.json", lines(number))
        project.tidegate("run", "orders", fault=f"{number}|kill", expect=None)
        project.wait_until_gone()
        assert len(project.steps()) >= number
        if number % 2:  # the one that a killed run took, or is to take
            project.put(f"in/{number}.json", lines(number) + b"\n")
    for _ in range(2):
        project.run()
    assert project.rows("id") == [(number,) for number in sorted(offered)]

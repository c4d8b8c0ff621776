"""Event notifications of a store as candidates: what they name is read once, and what none names is found."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.support.faulty_store import FaultyStore, use_store
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.core import storage
from tidegate.core.errors import SourceLostError
from tidegate.core.storage import ObjectPath
from tidegate.core.storage.user_objects import StoredObject
from tidegate.sources import errors
from tidegate.sources.files import message_files, notifications
from tidegate.sources.files.findings import describe_late, note_first_look, note_scan
from tidegate.sources.files.message_files import read_message_files
from tidegate.sources.files.notifications import read_names
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.port import Messages

TOP = "s3://bucket/in"
NOW = 1e9


class Topic:
    """Messages in the order in which they came."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.first = 0
        self.is_away = False

    def read(self, since: object) -> Messages:
        if self.is_away:
            raise errors.BROKER_AWAY(where="kafka", fault="no answer", reason="it is off")
        assert since is None or isinstance(since, int)
        if since is None or since < self.first:
            return Messages(len(self.bodies), missed="" if since is None else "the topic has lost some")
        return Messages(len(self.bodies), [(f"offset {at}", self.bodies[at]) for at in range(since, len(self.bodies))])


def event(key: str, bucket: str = "bucket", name: str = "ObjectCreated:Put") -> dict[str, Any]:
    """What S3 sends."""
    found = {"bucket": {"name": bucket}, "object": {"key": quote_plus(key, safe="/"), "size": 3, "eTag": "0"}}
    return {"Records": [{"eventVersion": "2.1", "eventName": name, "s3": found}]}


def unencoded(key: str) -> dict[str, Any]:
    """What versitygw sends."""
    found = {"bucket": {"name": "bucket"}, "object": {"key": key}}
    return {"Records": [{"eventName": "s3:ObjectCreated:Put", "s3": found}]}


def body(key: str, **more: str) -> bytes:
    return json.dumps(event(key, **more)).encode()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    made = FaultyStore()
    use_store(monkeypatch, made)
    return made


KEYS = {"path": TOP, "list_all_every": "1 hour", "notifications": {"topic": "events"}}


class Notified:
    """A source, its topic and its runs, a second apart."""

    def __init__(self, store: FaultyStore, inbox: Inbox) -> None:
        self.store, self.inbox, self.topic = store, inbox, Topic()
        self.batch, self.now = 0, NOW

    def put(self, name: str, data: bytes = b"{}\n", *, tells: bool = True) -> None:
        self.store.inside.put(f"in/{name}", data)
        if tells:
            self.topic.bodies.append(body(f"in/{name}"))

    def scan(self) -> FilesScan:
        return self.inbox.scan(self.now, self.topic.read)

    def take(self, steps: int = 4) -> list[str]:
        """What a run takes that ends after so many steps."""
        self.now += 1
        self.store.requests.clear()
        self.last = scan = self.scan()
        if steps > 0:
            note_first_look(self.inbox.ledger, SOURCE, self.inbox.spec, scan)
        if steps > 1:
            note_scan(self.inbox.ledger, SOURCE, scan)
        if steps > 2:
            self.inbox.admit(scan)
        if steps > 3:
            self.inbox.stage(self.batch)
            self.batch += 1
        return [one.path.removeprefix(f"{TOP}/") for one in scan.new] if steps > 2 else []


@pytest.fixture
def source(tmp_path: Path, store: FaultyStore) -> Iterator[Notified]:
    """A source that was listed, and has read one object."""
    with make_inbox(tmp_path, **KEYS) as inbox:
        made = Notified(store, inbox)
        made.put("0.json", tells=False)
        assert [made.take() for _ in range(2)] == [["0.json"], []]
        yield made


SNS = {"Type": "Notification", "TopicArn": "arn:x", "Message": json.dumps(event("a b.json"))}
BRIDGE = {"detail-type": "Object Created", "detail": {"bucket": {"name": "bucket"}, "object": {"key": "a b.json"}}}


@pytest.mark.parametrize(
    ("message", "uris"),
    [
        (event("a b/é+1.json"), ["s3://bucket/a b/é+1.json", "s3://bucket/a+b/%C3%A9%2B1.json"]),
        (unencoded("a b/é+1.json"), ["s3://bucket/a b/é 1.json", "s3://bucket/a b/é+1.json"]),
        (unencoded("%ff/%0A"), ["s3://bucket/%ff/%0A"]),
        (event("x", name="s3:ObjectCreated:CompleteMultipartUpload"), ["s3://bucket/x"]),
        ({"EventName": "s3:ObjectCreated:Put", "Key": "bucket/x", **event("x")}, ["s3://bucket/x"]),
        ({"Records": [*event("x")["Records"], *event("y")["Records"]]}, ["s3://bucket/x", "s3://bucket/y"]),
        (SNS, ["s3://bucket/a b.json", "s3://bucket/a+b.json"]),
        (BRIDGE, ["s3://bucket/a b.json"]),
        ({"detail": BRIDGE["detail"]}, ["s3://bucket/a b.json"]),
        ({**BRIDGE, "detail-type": "Object Deleted"}, []),
        (event("x", name="ObjectRemoved:DeleteMarkerCreated"), []),
        (event("day=1/"), []),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"}, []),
    ],
)
def test_each_form_of_a_message(message: dict[str, Any], uris: list[str]) -> None:
    assert read_names(json.dumps(message).encode()) == uris


BAD = [
    *(b"", b"\xff\xfe", b"no json", b'{"Records": [{"eventName"', b"[]", b"1", b"null", b"{}", b'{"Records": {}}'),
    *(b'{"Records": [1]}', b'{"Records": [{}]}', b'{"Records": [{"eventName": "ObjectCreated:Put", "s3": 1}]}'),
    *(b'{"Type": "Notification", "Message": "no json"}', b'{"detail": {}}', b'{"detail": {"bucket": {"name": "b"}}}'),
    b"[" * 100_000,
    *(json.dumps(unencoded(f"in/{key}")).encode() for key in ("a//b", "../x", "a/./b", "a\nb", "a\0b", "x" * 1025)),
    json.dumps(event("x")).replace('"x"', '"\\ud800"').encode(),
    json.dumps(event("x")).replace('"x"', "17").encode(),
]


@pytest.mark.parametrize("message", BAD, ids=lambda one: repr(one[:40]))
def test_what_is_no_message_is_named_and_passed_by(source: Notified, message: bytes) -> None:
    source.topic.bodies += [message, b"more", body("in/1.json")]
    source.put("1.json", tells=False)
    assert source.take() == ["1.json"]
    [note] = source.last.notes
    assert note.startswith("source trades: 2 messages in topic events are not event notifications: offset 0 (")
    assert source.take() == []
    assert source.last.notes == ()


def test_between_lists_only_what_is_named_is_looked_at(source: Notified) -> None:
    for _ in range(3):
        assert source.take() == []
        assert source.store.requests == []
    source.put("day=1/a b.json")
    source.put("day=1/c.json")
    source.topic.bodies += [body("in/day=1/c.json"), body("in/absent.json"), body("in2/x.json"), body("in/_SUCCESS")]
    source.topic.bodies += [body("in/y", bucket="other"), body("in"), body("inner/x")]
    source.put("_SUCCESS", tells=False)
    assert source.take() == ["day=1/a b.json", "day=1/c.json"]
    # Also the absent one and _SUCCESS, and for keys with = as they are in the message; where an object is absent, the
    # bucket is looked for once.
    assert sorted(source.store.requests) == [*["get"] * 6, "list"]
    assert source.take() == []
    assert source.store.requests == []


def test_the_pattern_of_the_source_counts(tmp_path: Path, store: FaultyStore) -> None:
    more = {"path": f"{TOP}/20*/*.json", "options": {"pathGlobFilter": "*[!x].json"}}
    with make_inbox(tmp_path, **{**KEYS, **more}) as inbox:
        source = Notified(store, inbox)
        source.put("2026/0.json")
        assert source.take() == ["2026/0.json"]
        source.take()
        for name in ("2026/1.json", "2026/x.json", "1999/1.json", "2026/a/1.json", "2026/_1.json"):
            source.put(name)
        assert source.take() == ["2026/1.json"]


def test_what_no_message_names_is_found_by_the_next_list(source: Notified) -> None:
    source.put("late.json", tells=False)
    source.put("2.json")
    assert source.take() == ["2.json"]
    source.now += 3600
    source.store.inside.delete("in/0.json")
    source.put("3.json")
    assert source.take() == ["3.json", "late.json"]
    assert "list" in source.store.requests
    assert source.last.vanished == (f"{TOP}/0.json",)
    assert source.last.late == ()  # they are new: their messages may be on the way
    source.put("late2.json", tells=False)
    source.put("4.json")
    source.now = datetime.now(UTC).timestamp() + 3600
    assert source.take() == ["4.json", "late2.json"]
    assert source.last.late == (f"{TOP}/late2.json",)
    assert "which no notification in topic events has named" in describe_late(
        SOURCE, source.inbox.spec, source.last.late
    )


def test_an_object_that_was_written_again_is_reported(source: Notified) -> None:
    source.put("0.json", b"another")
    source.take()
    assert [one["path"] for one in source.last.changed] == [f"{TOP}/0.json"]


@pytest.mark.parametrize("steps", range(4))
def test_what_a_killed_run_has_seen_is_not_forgotten(source: Notified, steps: int) -> None:
    source.put("1.json")
    taken = source.take(steps)
    source.put("2.json")
    taken += source.take()
    assert sorted(taken) == ["1.json", "2.json"]
    assert source.take() == []


def test_what_settles_or_cannot_be_read_stays_a_candidate(tmp_path: Path, store: FaultyStore) -> None:
    keys = {**KEYS, "settle": "1 minute", "schema": "id BIGINT, day DATE"}
    with make_inbox(tmp_path, **keys) as inbox:
        source = Notified(store, inbox)
        source.now = datetime.now(UTC).timestamp()
        source.put("day=2026-01-01/0.json")
        source.take()
        source.put("day=2026-01-02x/a.json")
        assert [source.take() for _ in range(3)] == [[], [], []]
        source.now += 60
        assert source.take() == ["day=2026-01-01/0.json"]
        inbox.keys["schema"] = "id BIGINT, day STRING"
        assert source.take() == ["day=2026-01-02x/a.json"]
        assert "list" not in source.store.requests


def test_a_topic_that_cannot_be_read_costs_a_list(source: Notified) -> None:
    source.put("1.json")
    source.topic.is_away = True
    assert source.take() == ["1.json"]
    assert source.last.notes == ("source trades: all keys are listed, without notifications: no answer: it is off",)
    source.topic.is_away = False
    source.put("2.json")
    assert source.take() == ["2.json"]
    assert source.store.requests == ["get", "get"]  # both were named since


def test_a_topic_that_has_lost_messages_costs_a_list(source: Notified) -> None:
    source.put("1.json")
    source.topic.first = 1
    assert source.take() == ["1.json"]
    assert source.last.notes == ("source trades: all keys are listed: the topic has lost some",)
    source.put("2.json")
    assert source.take() == ["2.json"]
    assert source.store.requests == ["get"]


def test_very_many_names_cost_a_list(source: Notified, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "NAMES_AT_MOST", 3)
    for number in range(1, 6):
        source.put(f"{number}.json")
    assert len(source.take()) == 5
    assert source.store.requests == ["list"]
    source.take()  # more than three were to be taken: they are listed once more
    source.put("6.json")
    assert source.take() == ["6.json"]
    assert source.store.requests == ["get"]


def test_another_topic_or_path_begins_with_a_list(source: Notified) -> None:
    source.put("1.json", tells=False)
    source.inbox.keys["notifications"] = {"topic": "others"}
    assert source.take() == ["1.json"]
    source.put("2.json", tells=False)
    source.inbox.keys["path"] = f"{TOP}/*.json"
    assert source.take() == ["2.json"]
    source.put("3.json", tells=False)
    del source.inbox.keys["notifications"]
    assert source.take() == ["3.json"]


def test_without_a_reader_of_messages_all_keys_are_listed(source: Notified) -> None:
    source.put("1.json")
    scan = source.inbox.scan(source.now)
    assert ([one.path for one in scan.new], scan.listed) == ([f"{TOP}/1.json"], None)


# Messages in a folder


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, store: FaultyStore) -> Path:
    """An empty folder for messages, on a disk and on a store."""
    if request.param == "store":
        return ObjectPath("s3://bucket/events")
    (tmp_path / "events").mkdir()
    return tmp_path / "events"


def read_folder(inbox: Inbox, folder: Path, since: object) -> tuple[Messages, list[tuple[str, bytes]]]:
    found = read_message_files(inbox.project, inbox.paths, SOURCE, str(folder), json.loads(json.dumps(since)))
    return found, list(found.bodies)


def test_each_file_of_a_folder_is_a_message_once(tmp_path: Path, store: FaultyStore, folder: Path) -> None:
    with make_inbox(tmp_path / "project", **KEYS) as inbox:
        storage.replace(folder / "old", body("in/old"))
        first, found = read_folder(inbox, folder, None)
        assert found == []
        storage.replace(folder / "2026" / "b", body("in/b"))
        storage.replace(folder / "a [1] ä.json", json.dumps(event("in/a"), indent=1).encode())
        storage.replace(folder / "lines", body("in/c") + b"\n\n" + body("in/d")[:40])
        for name in ("x.tmp", "_y", ".z"):
            storage.replace(folder / name, b"not yet")
        second, found = read_folder(inbox, folder, first.position)
        assert [place for place, _ in found] == ["2026/b", "a [1] ä.json", "lines line 1", "lines line 3"]
        assert [read_names(text) for _, text in found[:3]] == [[f"{TOP}/{name}"] for name in "bac"]
        assert read_folder(inbox, folder, second.position)[1] == []
        storage.replace(folder / "lines", body("in/c") + b"\n\n" + body("in/d"))  # written to the end by now
        assert read_names(read_folder(inbox, folder, second.position)[1][1][1]) == [f"{TOP}/d"]
        storage.remove(folder / "old")
        third, _ = read_folder(inbox, folder, second.position)
        storage.replace(folder / "old", body("in/again"))
        assert len(read_folder(inbox, folder, third.position)[1]) == 1


def test_a_folder_of_very_many_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_files, "_FILES_AT_MOST", 2)
    with make_inbox(tmp_path, **KEYS) as inbox:
        for name in "abc":
            inbox.write(name)
        found, _ = read_folder(inbox, tmp_path / "inbox", {})
        assert found.position is None
        assert found.missed.endswith("has over 2 files: remove those that are some days old")


def test_a_folder_of_messages_that_is_missing(tmp_path: Path) -> None:
    with make_inbox(tmp_path, **KEYS) as inbox:
        with pytest.raises(SourceLostError, match=r"orders has no folder .*/absent") as caught:
            read_folder(inbox, tmp_path / "absent", None)
        assert caught.value.code == "SOURCE_MISSING"
        assert "sources.trades.notifications.path" in str(caught.value.where)


def test_objects_that_files_of_a_folder_name(tmp_path: Path, store: FaultyStore, folder: Path) -> None:
    keys = {**KEYS, "notifications": {"path": str(folder)}}
    with make_inbox(tmp_path / "project", **keys) as inbox:
        source = Notified(store, inbox)
        read = partial(read_message_files, inbox.project, inbox.paths, SOURCE, str(folder))
        source.topic.read = read  # type: ignore[method-assign]
        source.put("0.json")
        assert [source.take() for _ in range(2)] == [["0.json"], []]
        source.put("1.json")
        storage.replace(folder / "1", body("in/1.json"))
        assert source.take() == ["1.json"]
        assert source.take() == []
        assert source.store.requests == ["list"] * isinstance(folder, ObjectPath)  # of the messages


@pytest.mark.parametrize("seed", range(20))
def test_each_object_is_taken_once_whatever_becomes_of_messages(tmp_path: Path, store: FaultyStore, seed: int) -> None:
    """Messages are lost, sent twice, late, torn, and taken by retention; runs are killed at any step."""
    draw = random.Random(seed)
    offered: set[str] = set()
    taken: list[str] = []
    late: list[bytes] = []
    with make_inbox(tmp_path, **{**KEYS, "list_all_every": "20 minutes"}) as inbox:
        source = Notified(store, inbox)
        for _ in range(40):
            source.now += 60
            for _ in range(draw.randrange(4)):
                name = f"{draw.randrange(10**6)}.json"
                source.put(name, tells=False)
                offered.add(name)
                message = body(f"in/{name}")
                late += [message] * draw.choice((0, 1, 1, 1, 2)) + [message[:-9]] * draw.choice((0, 0, 0, 1))
            draw.shuffle(late)
            arrived = draw.randrange(len(late) + 1)
            source.topic.bodies += late[:arrived]
            del late[:arrived]
            source.topic.is_away = draw.random() < 0.1
            if draw.random() < 0.1:
                source.topic.first = len(source.topic.bodies)
            taken += source.take(draw.randrange(5))
        source.topic.is_away = False
        for _ in range(2):
            source.now += 1200
            taken += source.take()
    assert sorted(taken) == sorted(offered)


def test_a_look_at_an_object_has_what_a_list_says(source: Notified) -> None:
    source.put("1.json")
    [entry] = source.scan().new
    [meta] = [one for page in source.store.inside.list("in") for one in page if one["path"] == "in/1.json"]
    found = StoredObject.of(meta)
    assert (entry.e_tag, entry.size, entry.mtime_ns) == (found.e_tag, found.st_size, found.st_mtime_ns)

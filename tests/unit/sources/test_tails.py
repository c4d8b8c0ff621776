"""``on_change: reread_tail``: what is appended to a file is read, each line once, whatever is killed in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.runs.order import _list_pending_links
from tidegate.sources.files import intake
from tidegate.sources.files.scan import scan_files
from tidegate.spark.ingest.capture import PositionFinder


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with make_inbox(tmp_path, format="text", on_change="reread_tail") as made:
        yield made


def test_each_line_is_read_once_and_half_a_line_waits(inbox: Inbox) -> None:
    inbox.write("app.log", "one\ntwo\nthr")
    scan, texts = inbox.run(0)
    assert texts == [b"one\ntwo\n"]
    assert [one["path"] for one in scan.settling] == ["inbox/app.log"]
    assert (scan.changed, scan.vanished) == ((), ())
    scan, texts = inbox.run(1)
    assert (texts, scan.new, len(scan.settling)) == ([], (), 1)
    inbox.write("app.log", "ee\nfour\n", append=True)
    scan, texts = inbox.run(2)
    assert (texts, scan.settling, scan.changed) == ([b"three\nfour\n"], (), ())
    scan, texts = inbox.run(3)
    assert (texts, scan.new, scan.settling, scan.changed, scan.vanished) == ([], (), (), (), ())
    for number in range(4, 15):
        inbox.write("app.log", f"{number}\n", append=True)
        assert inbox.run(number)[1] == [f"{number}\n".encode()]
    (inbox.root / "inbox/app.log").unlink()
    assert inbox.run(15)[0].vanished == ("inbox/app.log",)
    assert inbox.run(16)[0].vanished == ()


def test_a_last_line_that_stays_open_is_read_when_it_is_still(inbox: Inbox) -> None:
    path = inbox.write("app.log", "one\ntwo")
    later = path.stat().st_ctime + 11
    assert inbox.run(0, later)[1] == [b"one\ntwo"]
    assert inbox.run(1, later)[0].changed == ()
    changed_at = inbox.write("app.log", "\nthree\n", append=True).stat().st_ctime
    assert inbox.run(2, changed_at)[1] == [b"three\n"], "the line break that ends what was read is no line of its own"
    later = inbox.write("app.log", "four", append=True).stat().st_ctime + 11
    assert inbox.run(3, later)[1] == [b"four"]
    inbox.write("app.log", "teen\nfive\n", append=True)
    scan, texts = inbox.run(4)
    assert texts == [], "half of its line is in the table"
    (change,) = scan.changed
    assert change["how"] == "grew in the middle of a line that was read" and change["unread_bytes"] == 10


def _shrink(path: Path) -> None:
    path.write_text("one\n")


def _rewrite(path: Path) -> None:
    path.write_text("ONE\ntwo\nthree\n")


def _rotate(path: Path) -> None:
    path.rename(path.with_name(".app.log.1"))
    path.write_text("new\nlines\nof another\nlife\n")


@pytest.mark.parametrize("change", [_shrink, _rewrite, _rotate])
def test_what_was_not_appended_is_reported_and_not_read(inbox: Inbox, change: Callable[[Path], None]) -> None:
    path = inbox.write("app.log", "one\ntwo\n")
    inbox.run(0)
    change(path)
    scan, texts = inbox.run(1)
    assert (texts, scan.new) == ([], ())
    assert [one["path"] for one in scan.changed] == ["inbox/app.log"]
    assert [row.path for row in inbox.ledger.noted_rows()] == ["inbox/app.log"]
    assert inbox.run(2)[0].changed == ()


def test_replaced_by_a_longer_copy_of_itself_it_was_appended_to(inbox: Inbox) -> None:
    """As rsync does it: another file of the same name that begins with the same bytes."""
    path = inbox.write("app.log", "one\n" * 20_000)
    inbox.run(0)
    beside = path.with_name(".app.log.x")
    beside.write_text("one\n" * 20_000 + "two\n")
    beside.rename(path)
    assert inbox.run(1)[1] == [b"two\n"]


def test_a_header_stands_before_each_tail_and_lines_have_the_files_numbers(inbox: Inbox) -> None:
    inbox.keys |= {"format": "csv", "options": {"header": True, "comment": "#"}, "schema": "id INT, name STRING"}
    inbox.write("day=1/a.csv", "# made today\nid,name\n1,a\n")
    assert inbox.run(0)[1] == [b"# made today\nid,name\n1,a\n"]
    inbox.write("day=1/a.csv", "2,b\n3,c,\n", append=True)
    inbox.admit()
    links = _list_pending_links(inbox.ledger, [SOURCE])
    ((link, entry),) = links[SOURCE].items()
    assert (inbox.intake / link).read_bytes() == b"# made today\nid,name\n2,b\n3,c,\n"
    finder = PositionFinder(links, inbox.paths, {})
    record = {"position": f"file:///x/{link}#0+4", "raw": "3,c,"}
    assert finder.locate([record])[0]["position"] == '{"file": "inbox/day=1/a.csv", "line": 5}'
    assert finder.original(f"file:///x/{link}") == "inbox/day=1/a.csv"
    assert entry["file"] == "inbox/day=1/a.csv"


def test_other_separators(inbox: Inbox) -> None:
    inbox.keys["options"] = {"lineSep": "||"}
    inbox.write("a.log", "one||two|")
    assert inbox.run(0)[1] == [b"one||"]
    inbox.write("a.log", "|three||", append=True)
    assert inbox.run(1)[1] == [b"two||three||"]


def test_a_compressed_file_is_taken_whole_and_its_change_reported(inbox: Inbox) -> None:
    inbox.write("a.log.gz", b"not really")
    assert inbox.run(0)[1] == [b"not really"]
    inbox.write("a.log.gz", b" gzip", append=True)
    scan, texts = inbox.run(1)
    assert (texts, [one["how"] for one in scan.changed]) == ([], ["grew"])


def test_the_policy_can_be_changed_on_a_living_source(inbox: Inbox) -> None:
    inbox.keys["on_change"] = "report"
    inbox.write("app.log", "one\n")
    inbox.run(0)
    inbox.write("app.log", "two\n", append=True)
    assert [one["unread_bytes"] for one in inbox.run(1)[0].changed] == [4]
    inbox.keys["on_change"] = "reread_tail"
    scan, texts = inbox.run(2)
    assert (texts, scan.changed) == ([b"two\n"], ())
    assert inbox.ledger.noted_rows() == [], "it is read by now"
    inbox.write("app.log", "three\n", append=True)
    inbox.admit()
    (entry,) = _list_pending_links(inbox.ledger, [SOURCE])[SOURCE].values()
    assert (entry["piece"]["begin"], entry["piece"]["line_offset"]) == (8, 2)


def test_what_is_read_again_after_a_repair_is_the_same_pieces(inbox: Inbox) -> None:
    inbox.keys["on_change"] = "report"
    inbox.write("app.log", "one\n")
    inbox.run(0)
    inbox.keys["on_change"] = "reread_tail"
    inbox.write("app.log", "two\n", append=True)
    inbox.run(1)
    inbox.write("app.log", "three\n", append=True)
    inbox.run(2)
    inbox.write("app.log", "four\n", append=True)
    inbox.ledger.return_to_linked({"q": -1})
    restored = inbox.restore()
    assert (len(restored.links), restored.lost) == (3, ())
    assert inbox.scan().vanished == ()
    assert sorted(inbox.read(3)) == [b"one\n", b"three\n", b"two\n"]
    assert inbox.run(4)[1] == [b"four\n"]
    inbox.ledger.return_to_linked({"q": -1})
    inbox.write("app.log", "another\nfile of\nthis name\nand longer\n")
    assert len(inbox.restore().lost) == 4, "their bytes are gone: named, not guessed"


def test_two_processes_take_one_tail_once(inbox: Inbox) -> None:
    inbox.write("app.log", "one\n")
    inbox.run(0)
    inbox.write("app.log", "two\n", append=True)
    first = inbox.scan()
    inbox.write("app.log", "three\n", append=True)
    second = inbox.scan()
    assert len(inbox.admit(first).links) == 1
    assert inbox.admit(second).links == ()
    assert inbox.read(1) == [b"two\n"]
    intake.sweep_intake(inbox.paths, SOURCE, inbox.ledger)
    assert [path for path in inbox.intake.rglob("*") if path.is_file()] == []
    assert inbox.run(2)[1] == [b"three\n"]


def _take_killed(inbox: Inbox, at: int, *, after: bool) -> bool:
    """One run that is killed at its ``at``-th storage call; whether it was."""
    with pytest.MonkeyPatch.context() as patch:
        StorageCalls(patch, at, kill, after=after)
        try:
            inbox.restore()
            scan = scan_files(inbox.project, inbox.paths, SOURCE, inbox.spec, inbox.ledger)
            inbox.admit(scan)
            intake.sweep_intake(inbox.paths, SOURCE, inbox.ledger)
        except KilledHere:
            return True
    return False


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("options", [{}, {"header": True}])
def test_killed_at_any_storage_call_each_line_is_read_once(
    tmp_path: Path, options: dict[str, Any], after: bool
) -> None:
    keys = {"format": "csv", "schema": "id STRING", "on_change": "reread_tail", "options": options}
    at, header = 1, "id\n" if options else ""
    while True:
        with make_inbox(tmp_path / str(at), **keys) as inbox:
            inbox.write("a.csv", f"{header}one\n")
            read = b"".join(inbox.run(0)[1])
            inbox.write("a.csv", "two\nthree\n", append=True)
            inbox.write("b.csv", f"{header}four\nfiv")
            was_killed = _take_killed(inbox, at, after=after)
            inbox.write("a.csv", "six\n", append=True)  # what comes in between is no part of what was taken
            inbox.write("b.csv", "e\n", append=True)
            for batch in (1, 2):
                read += b"".join(inbox.run(batch)[1])
            assert sorted(read.replace(b"id\n", b"").split()) == [b"five", b"four", b"one", b"six", b"three", b"two"]
            assert [path for path in inbox.intake.rglob("*") if path.is_file()] == []
        if not was_killed:
            break
        at += 1
    assert at > 3


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_appending_and_running(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with make_inbox(tmp_path, format="text", on_change="reread_tail") as inbox:
        written = dict.fromkeys(("a.log", "b.log"), b"")
        read: list[bytes] = []
        line = 0
        for step in range(40):
            name = chance.choice(list(written))
            if chance.random() < 0.6:
                text = b"".join(b"%d\n" % (line + one) for one in range(3))[: chance.choice([4, 5, 6, 99])]
                line += 3
                written[name] += text
                inbox.write(name, text, append=True)
            elif chance.random() < 0.5:
                _take_killed(inbox, chance.randrange(1, 12), after=chance.random() < 0.5)
            else:
                read += inbox.run(step)[1]
        for name in written:
            written[name] += b"\n"
            inbox.write(name, "\n", append=True)
        for step in (98, 99):
            read += inbox.run(step)[1]
        assert sorted(b"".join(read).splitlines()) == sorted(b"".join(written.values()).splitlines())
        assert inbox.ledger.noted_rows() == []


def test_a_file_whose_pieces_were_read_again_vanishes_once(inbox: Inbox) -> None:
    inbox.write("app.log", "one\n")
    inbox.run(0)
    inbox.write("app.log", "two\n", append=True)
    inbox.run(1)
    inbox.ledger.return_to_linked({"q": -1})
    assert inbox.run(2)[1] == [b"one\n", b"two\n"]
    (inbox.root / "inbox/app.log").unlink()
    assert [inbox.run(number)[0].vanished for number in (3, 4)] == [("inbox/app.log",), ()]

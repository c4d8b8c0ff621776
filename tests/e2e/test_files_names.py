"""Files of every name, age and ending, and what happens to them before, while and after they are read."""

from __future__ import annotations

import json
import os

from tests.e2e.conftest import MakePipeline, Pipeline
from tests.support.scene import NAME

JSON_SOURCE = "path: data/inbox\nformat: json\nschema: id STRING, amount INT"

NAMES: list[str | bytes] = [
    "plain.json",
    "a b.json",
    " lead and trail ",
    "100%.json",
    "a%20b.json",
    "x=y.json",
    "x[y].json",
    "x{y,z}.json",
    "*star?.json",
    "#hash;semi&.json",
    "co:lon.json",
    "'q\"uote`.json",
    "back\\slash.json",
    "new\nline.json",
    "tab\tand\x01control.json",
    "-dash.json",
    "é.json",
    "e\u0301.json",
    "日本😀.json",
    "\u202eoverride.json",
    b"not \xff unicode.json",
    "n" * 250 + ".json",
    "UPPER.JSON",
    "no_ending",
    "two.dots.json.txt",
]
SKIPPED = ["_led.json", ".hidden.json", "_SUCCESS", "half.json.tmp", "half.json.part"]


def _line(key: str, amount: int) -> str:
    return json.dumps({"id": key, "amount": amount})


def _offer_names(pipeline: Pipeline) -> None:
    """A good and a torn record under each name; the torn one proves the position."""
    for number, name in enumerate([*NAMES, "old.json", "future.json"]):
        torn = f'{{"id": "torn{number}"'
        mtime = {"old.json": 0.0, "future.json": 4102444800.0}.get(str(name))
        path = pipeline.put(name, f"{_line(f'name{number}', number)}\n{torn}\n", mtime=mtime)
        pipeline.expect_rows([{"id": f"name{number}", "amount": number}])
        pipeline.expect_aside(path, 2, torn)
    for name in SKIPPED:
        pipeline.put(name, _line("must not be read", -1))


def _offer_endings(pipeline: Pipeline) -> None:
    """Lines that end, or do not end, in every way."""

    def offer(name: str, content: bytes, *keys: str) -> str:
        pipeline.expect_rows({"id": key, "amount": 7} for key in keys)
        return pipeline.put(name, content)

    lines = [_line(f"end{number}", 7).encode() for number in range(12)]
    offer("no_final_newline.json", lines[0] + b"\n" + lines[1], "end0", "end1")
    path = offer("crlf.json", lines[2] + b"\r\n" + lines[3] + b"\r\ntorn crlf\r\n", "end2", "end3")
    pipeline.expect_aside(path, 3, "torn crlf")
    path = offer("blank.json", b"\n  \n" + lines[4] + b"\n\n\ntorn blank\n\n", "end4")
    pipeline.expect_aside(path, 6, "torn blank")
    path = offer("bom.json", b"\xef\xbb\xbf" + lines[5] + b"\ntorn bom\n", "end5")
    pipeline.expect_aside(path, 2, "torn bom")
    path = offer("bom_crlf.json", b"\xef\xbb\xbf" + lines[6] + b"\r\n" + lines[7], "end6", "end7")
    offer("only_blank.json", b"\n\n  \n")
    long_key = "L" * (2 << 20)
    offer("long.json", _line(long_key, 7).encode(), long_key)
    pipeline.put("empty.json", b"")


def test_names_times_and_endings(make_pipeline: MakePipeline) -> None:
    """One run reads them all; what it does not read it names. Then each file changes in its own way, and idle runs
    name the changes, once."""
    pipeline = make_pipeline(JSON_SOURCE)
    _offer_names(pipeline)
    _offer_endings(pipeline)
    planned = json.loads(pipeline.call("plan", NAME, "--json"))["sources"]["orders"]
    report = pipeline.report("run", NAME)
    pipeline.check()

    offered = len(pipeline.rows) + pipeline.aside.total()
    assert report["rows"]["read"] == offered
    assert report["rows"]["malformed"] == pipeline.aside.total()
    assert report["sources"]["orders"]["files"] == planned["files"] == len(NAMES) + 2 + 7
    skipped = {one["path"] for one in report["sources"]["orders"]["skipped"]}
    assert skipped == {f"data/inbox/{name}" for name in [*SKIPPED, "empty.json"]}
    assert not any((pipeline.state / "intake").rglob("*.json")), "links stay behind"

    inbox = pipeline.inbox
    (inbox / "plain.json").write_text(_line("rewritten", 1) + "\n" + _line("longer", 1))
    with open(inbox / "a b.json", "a") as handle:
        handle.write(_line("appended", 1))
    os.truncate(inbox / "100%.json", 5)
    (inbox / "é.json").unlink()
    os.utime(inbox / "x[y].json", (5, 5))  # the same content is no change
    second = pipeline.run()
    assert second["outcome"] == "nothing_new"
    source = second["sources"]["orders"]
    wanted = {f"data/inbox/{name}" for name in ("plain.json", "a b.json", "100%.json")}
    assert {change["path"] for change in source["changed"]} == wanted
    assert {change["policy"] for change in source["changed"]} == {"not read again"}
    by_path = {change["path"]: change for change in source["changed"]}
    assert by_path["data/inbox/100%.json"]["now"]["size"] == 5
    assert source["vanished"] == ["data/inbox/é.json"]
    third = pipeline.run()["sources"]["orders"]
    assert "changed" not in third and "vanished" not in third, "reported once"
    pipeline.check()

    # What was not taken is taken as soon as it is whole; a name that comes back is known.
    os.rename(inbox / "half.json.tmp", inbox / "half.json")
    (inbox / "half.json").write_text(_line("half", 1))
    (inbox / "empty.json").write_text(_line("filled", 2))
    (inbox / "é.json").write_text(_line("came back under a name that was read", 1))
    pipeline.expect_rows([{"id": "half", "amount": 1}, {"id": "filled", "amount": 2}])
    # A record this long is kept whole, with its line.
    torn = '{"id": "' + "T" * (2 << 20)
    pipeline.expect_aside(pipeline.put("long_torn.json", torn + "\n"), 1, torn)
    last = pipeline.run()
    assert last["rows"]["read"] == 3
    assert [change["path"] for change in last["sources"]["orders"]["changed"]] == ["data/inbox/é.json"]
    pipeline.check()

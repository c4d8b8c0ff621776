"""A person restores one or two of {state folder, table, quarantine table} from a copy of before some work, and does
what the pipeline then says. Where each record is afterwards is counted here, by the readers of the tests alone."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.model import world as world_module
from tests.model.beside import D1, D2
from tests.model.processes import Process
from tests.model.readers import read_actions
from tests.model.world import NAME, Shape, World, read_log, read_plain
from tidegate.core.errors import DisagreementError, HeldError, TidegateError
from tidegate.rework.adopt.adoption import adopt_table
from tidegate.rework.replay.choose import Selection
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.spec.models import MaintenanceSpec
from tidegate.views.status import project_status

_START = {"files": "start: all", "kafka": "starting_offsets: earliest"}
COMBINATIONS = ("state", "table", "quarantine", "state+table", "state+quarantine", "table+quarantine")
"""What is older than the rest."""
BETWEEN = ("at once", "idle run", "run")
"""What comes between the work and the restore."""
_REFUSALS_OF_REPLAY = ("REPLAY_REFUSED", "REPLAY_HELD")
_COMMAND = re.compile(r"tidegate (?:adopt|backfill|discard|refresh|release|repair|reset|run)\b[^`;,:]*")
_STEPS_AT_MOST = 8

Outcome = Literal["harmless", "mended", "restore only"]


class Cell(NamedTuple):
    """One case of the matrix."""

    work: str
    combination: str
    between: str
    shape: Shape

    def __str__(self) -> str:
        return "-".join(self).replace(" ", "_")


@dataclass
class Restorer:
    """The person, with a pipeline that has done nothing yet."""

    world: World
    work: str
    discarded: set[str] = field(default_factory=set)
    """What the gate held and a person left out."""
    spoiled: set[str] = field(default_factory=set)
    """Good records that the schema, corrected since, does not fit."""
    own_rows: set[str] = field(default_factory=set)
    """What was in the table before it was adopted."""
    done: list[str] = field(default_factory=list)
    """The commands that errors named and that were followed."""
    had_rows: bool = False

    def __post_init__(self) -> None:
        parse = self.world._parse

        def parse_anew(row: dict[str, str]) -> dict[str, str]:
            return {**row, "kind": "malformed"} if row["id"] in self.spoiled else parse(row)

        self.world._parse = parse_anew  # type: ignore[method-assign]

    # -- before the restore --

    def carry_out(self, combination: str, between: str) -> None:
        """The pipeline's life up to the moment at which older copies were put back."""
        begin, work = WORKS[self.work]
        begin(self)
        copies = self._copy()
        work(self)
        if between == "run":
            self.offer("good", "malformed")
        if between != "at once":
            _done(self.world.run(self.world.new_run_id()))
        if between != "at once" or "rollback" not in self.work:  # else its records are still to be read
            self.check()
        for name in combination.split("+"):
            shutil.rmtree(self._folder(name), ignore_errors=True)
            if (copies / name).exists():
                shutil.copytree(copies / name, self._folder(name))
        self.had_rows = bool(read_plain(self.world.paths.table))

    def _copy(self) -> Path:
        target = self.world.root / "copies"
        for name in ("state", "table", "quarantine"):
            if self._folder(name).exists():
                shutil.copytree(self._folder(name), target / name)
        return target

    def _folder(self, name: str) -> Path:
        paths = self.world.paths
        return {"state": paths.state, "table": paths.table, "quarantine": paths.quarantine}[name]

    def offer(self, *kinds: str) -> list[str]:
        """New records; their ids."""
        before = set(self.world.offered)
        self.world.offer(0, kinds)
        return [one for one in self.world.offered if one not in before]

    def run(self, *kinds: str) -> list[str]:
        """A run that reads new records; their ids."""
        ids = self.offer(*kinds)
        _done(self.world.run(self.world.new_run_id()))
        return ids

    def mend(self) -> None:
        """The schema is corrected: what was malformed fits."""
        self.world.mended |= {one for one, kind in self.world.offered.items() if kind == "malformed"}

    # -- after the restore --

    def go_on(self, *, is_again: bool = False) -> Outcome:
        """Run, do what each error says, and put everything through that is in quarantine."""
        self.offer("good", "good", "malformed")
        if self._is_beyond_repair():
            return "restore only"
        self._run()
        for run_id in self.world.waiting:  # a copy of before a decision
            _done(self.world.decide("release", run_id))
        is_harmless = not self.done
        self.check()
        self._run()
        self.mend()
        self._replay()
        self.check()
        self.run("good", "malformed")
        self.mend()
        self._replay()
        self.check()
        assert is_again or is_harmless == (not self.done), f"a run was green, and later it was refused: {self.done}"
        return "harmless" if is_harmless else "mended"

    def finish(self) -> None:
        """Go on where a repair was killed."""
        self._run()
        (row,) = project_status(self.world.project, NAME)
        if row["lost"] is not None:
            self._do(shlex.split(row["lost"]["command"]))
        self.go_on(is_again=True)

    def _is_beyond_repair(self) -> bool:
        """Whether nobody can tell which files gave the rows of an adopted table: it is as it was before it was adopted
        for the state folder, which is gone then. Refused, with nothing changed, until that is restored."""
        paths = self.world.paths
        if self.work != "adopt" or self.world.shape != "files" or paths.birth.exists() or paths.ledger.exists():
            return False
        before = self.world._views()
        error = self.world.run(self.world.new_run_id()).error
        assert isinstance(error, DisagreementError) and error.code == "STATE_BEHIND" and "restore" in str(error.fix)
        assert self.world._views() == before, "it was refused, and something changed"
        return True

    def _run(self) -> None:
        """Runs, until one goes well."""
        for _ in range(_STEPS_AT_MOST):
            process = self.world.run(self.world.new_run_id())
            self._look()
            if process.error is None:
                return
            self._follow(process.error)
        raise AssertionError(f"no way out: {self.done}")

    def _replay(self) -> None:
        process = self.world.replay(self.world.new_run_id(), Selection())
        error = process.error
        assert error is None or (isinstance(error, TidegateError) and error.code in _REFUSALS_OF_REPLAY), repr(error)
        self._look()

    def _look(self) -> None:
        """The table is not emptied, at no moment."""
        assert not self.had_rows or read_plain(self.world.paths.table), f"the table is empty, after {self.done}"

    def _follow(self, error: BaseException) -> None:
        assert isinstance(error, TidegateError), repr(error)
        if isinstance(error, HeldError):  # a copy of before a decision: it is asked for once more
            self._do(next(words for words in _find_commands(error.fix) if words[1] == "release"))
            return
        assert isinstance(error, DisagreementError) and error.exit_code == 78, repr(error)
        commands = _find_commands(error.fix)
        assert commands, f"the fix names no command: {error.fix}"
        self.done.append(error.code)
        self._do(min(commands, key=lambda words: "--rebuild" in words))

    def _do(self, words: list[str]) -> None:
        """One command, and those that it names as the next ones."""
        world, self.done = self.world, [*self.done, " ".join(words)]
        _, command, name, *options = words
        assert name == NAME, words
        if command == "repair":
            rebuild, dry_run = "--rebuild" in options, "--dry-run" in options
            assert not rebuild, f"the only way on empties the table: {self.done}"
            process = world._start(
                "repair", lambda: repair_pipeline(world.project, NAME, dry_run=dry_run, rebuild=rebuild), None
            )
            self._look()
            if process.error is not None:
                self._follow(process.error)
                return
            # What is done is done; `run again` is what happens anyway.
            for following in _find_commands("; ".join(process.value["choices"])):
                if following[1] in ("refresh", "backfill"):
                    self._do(following)
        elif command in ("release", "discard"):
            _done(world.decide(command, options[0]))
        elif command == "refresh":
            _done(world.refresh(world.new_run_id()))
        elif command == "adopt":
            self.adopt()
        else:
            raise AssertionError(f"no such command is known here: {words}")
        self._look()

    def adopt(self) -> None:
        """``tidegate adopt``."""
        world = self.world
        run_id = world.new_run_id()
        _done(
            world._start(
                f"adopt {run_id}", lambda: adopt_table(world.project, NAME, run_id, world.paths.table, None), None
            )
        )

    # -- the truth --

    def check(self) -> None:
        """Every record is once in the table or once in quarantine, for each reader; what a person left out may be in
        neither."""
        paths = self.world.paths
        plain, aside = read_plain(paths.table), read_plain(paths.quarantine)
        assert plain == read_log(paths.table), "readers of the table differ"
        assert aside == read_log(paths.quarantine), "readers of quarantine differ"
        found = plain + aside
        left_out = self.discarded | self._left_out()
        offered = Counter([*self.world.offered, *self.own_rows])
        wrong = {
            "lost": sorted(one for one in offered if not found[one] and one not in left_out),
            "twice": sorted(one for one, count in found.items() if count > 1),
            "unknown": sorted(set(found) - set(offered)),
        }
        assert not any(wrong.values()), f"{wrong}, after {self.done}\n" + "\n".join(self.world.log)

    def _left_out(self) -> set[str]:
        """What a rollback that the log has took out of the table, if its records stay taken."""
        log = sorted((self.world.paths.table / "_delta_log").glob("*[0-9].json"))
        infos = [next((one["commitInfo"] for one in read_actions(path) if "commitInfo" in one), {}) for path in log]
        is_rolled_back = any(one.get("tidegate.then") == "leave-out" for one in infos)
        return self.rolled_back if is_rolled_back else set()

    rolled_back: set[str] = field(default_factory=set)


def _done(process: Process) -> Any:
    assert process.error is None, f"{process.name}: {process.error!r}"
    return process.value


def name_start(patch: pytest.MonkeyPatch) -> None:
    """The spec of the next pipeline says where its source starts, and fits the table: what an adoption asks for."""
    for shape, start in _START.items():
        text = world_module._SOURCES[shape].replace("day STRING", "day DATE")
        patch.setitem(world_module._SOURCES, shape, text.replace("format:", f"{start}, format:"))


def _find_commands(text: str | None) -> list[list[str]]:
    """The commands that a text names, but for those that only show something."""
    found = [shlex.split(one.rstrip(". ")) for one in _COMMAND.findall(text or "")]
    return [words for words in found if "--dry-run" not in words]


# -- what was done between the copy and the restore --


def _begin(it: Restorer) -> None:
    it.run("good", "malformed")
    it.run("good", "good", "malformed")


def _begin_held(it: Restorer) -> None:
    _begin(it)
    it.offer("poor", "poor", "malformed")
    assert isinstance(it.world.run("held").error, HeldError)


def _begin_apart(it: Restorer) -> None:
    """Each file, and each batch, has rows of one partition."""
    it.run("good")
    it.run("malformed")
    it.run("good")


def _begin_anew(it: Restorer) -> None:
    """The living query has read nothing yet."""
    _begin(it)
    _done(it.world.reset())


def _work_run(it: Restorer) -> None:
    it.run("good", "malformed")


def _work_run_without_malformed(it: Restorer) -> None:
    it.run("good")


def _work_replay(it: Restorer) -> None:
    it.mend()
    _done(it.world.replay(it.world.new_run_id(), Selection()))


def _correct_schema(it: Restorer) -> None:
    it.mend()
    it.spoiled.add(next(one for one, kind in it.world.offered.items() if kind == "good"))


def _work_backfill(it: Restorer) -> None:
    _correct_schema(it)
    _done(it.world.backfill(it.world.new_run_id(), D1, D2))


def _work_refresh(it: Restorer) -> None:
    _correct_schema(it)
    _done(it.world.refresh(it.world.new_run_id()))


def _work_rollback(it: Restorer) -> None:
    _done(it.world.rollback(0, "reread"))


def _work_leave_out(it: Restorer) -> None:
    it.rolled_back = set(read_log(it.world.paths.table))
    _done(it.world.rollback(0, "leave-out"))
    it.rolled_back -= set(read_log(it.world.paths.table))


def _work_reread(it: Restorer) -> None:
    it.offer("good", "good", "good")
    _done(it.world.decide("reread", "held"))


def _work_release(it: Restorer) -> None:
    _done(it.world.decide("release", "held"))


def _work_discard(it: Restorer) -> None:
    it.discarded |= {one for one, kind in it.world.offered.items() if kind == "poor"}
    _done(it.world.decide("discard", "held"))


def _begin_waiting(it: Restorer) -> None:
    """An increment waits alone; later ones go on."""
    _begin(it)
    it.offer("poor", "poor", "malformed")
    it.world.run("waits")
    assert it.world.waiting == ["waits"]
    it.run("good", "malformed")


def _work_release_alone(it: Restorer) -> None:
    _done(it.world.decide("release", "waits"))


def _work_discard_alone(it: Restorer) -> None:
    it.discarded |= {one for one, kind in it.world.offered.items() if kind == "poor"}
    _done(it.world.decide("discard", "waits"))


def _work_maintain(it: Restorer) -> None:
    _done(it.world.maintain(it.world.new_run_id(), MaintenanceSpec(keep_versions=0)))


def _work_repair(it: Restorer) -> None:
    it.world.paths.pinned().birth.unlink()
    it.world.disagrees = True
    process = it.world.repair()
    assert _done(process)["code"] == "CHECKPOINT_DIVERGED"


def _work_reset(it: Restorer) -> None:
    _done(it.world.reset())


def _begin_adopt(it: Restorer) -> None:
    rows = {"id": ["own-0"], "kind": ["good"], "day": [date.fromisoformat(D1)]}
    write_deltalake(it.world.paths.table, pa.table(rows), partition_by=["day"])
    it.own_rows.add("own-0")


def _work_adopt(it: Restorer) -> None:
    it.adopt()


Act = Callable[[Restorer], None]
WORKS: dict[str, tuple[Act, Act]] = {
    "run": (_begin, _work_run),
    "run without malformed": (_begin, _work_run_without_malformed),
    "replay": (_begin, _work_replay),
    "backfill": (_begin_apart, _work_backfill),
    "refresh": (_begin, _work_refresh),
    "rollback": (_begin, _work_rollback),
    "rollback of a new query": (_begin_anew, _work_rollback),
    "leave out": (_begin, _work_leave_out),
    "leave out of a new query": (_begin_anew, _work_leave_out),
    "reread": (_begin_held, _work_reread),
    "release": (_begin_held, _work_release),
    "discard": (_begin_held, _work_discard),
    "release alone": (_begin_waiting, _work_release_alone),
    "discard alone": (_begin_waiting, _work_discard_alone),
    "maintain": (_begin, _work_maintain),
    "maintain of a new query": (_begin_anew, _work_maintain),
    "repair": (_begin, _work_repair),
    "reset": (_begin, _work_reset),
    "adopt": (_begin_adopt, _work_adopt),
}
"""Each kind of work: what comes before the copy, and the work."""

"""What can happen to a pipeline, as rules that hypothesis puts into any order.

A command runs to its end, or is stopped at one of its storage calls, before or behind it: killed there, or frozen, to
be thawed at any later time. After every rule the readers are asked (:meth:`World.check`); in the end everything is
settled, and each record must be accounted for once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.clock import STEPS
from tests.model.edits import EDITS, edit
from tests.model.foreign import TENDS
from tests.model.on_store import put_on_store
from tests.model.processes import Process, Stop
from tests.model.unsynced import CUTS, Cut
from tests.model.world import Shape, World, newest_version
from tidegate.rework.replay.choose import Selection
from tidegate.spec.models import ExpireSpec, MaintenanceSpec
from tidegate.table.quarantine.filters import QuarantineFilter

ROOM = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
"""In memory where there is such a place: a step costs a hundred storage calls."""

KINDS = st.one_of(
    st.just(["good"]),
    st.just(["poor"]),
    st.lists(st.sampled_from(["good", "good", "poor", "malformed"]), min_size=2, max_size=4),
)
ENDINGS = st.sampled_from(["", "", "", ".decision", ".result", ".quality"])
"""Run ids that end as the program's own file names do."""
Fate = tuple[Stop, str] | None


def fates(*landmarks: str, at_most: int) -> st.SearchStrategy[Fate]:
    """What becomes of a command: it ends, or it is stopped at one of its first calls on a path with one of
    ``landmarks`` in it, or at any of its first ``at_most`` calls."""
    points = st.one_of(
        st.builds(Stop, where=st.sampled_from(landmarks), nth=st.sampled_from([1, 1, 1, 2, 3]), after=st.booleans()),
        st.builds(Stop, nth=st.integers(1, at_most), after=st.booleans()),
    )
    return st.one_of(st.none(), st.tuples(points, st.sampled_from(["killed", "frozen"])))


ARRIVALS = st.lists(st.tuples(st.sampled_from([0, 1]), KINDS), max_size=2)


_RUN = fates(
    "offsets/", "commits/", "manifests/", "verdicts", "intents", "warehouse", "birth", "set_aside", at_most=120
)
_DECISION = fates("decision", "verdicts", "intents", "warehouse", "set_aside", "birth", "retired", at_most=60)
_BACKFILL = fates("backfills", "intents", "warehouse", "quarantine", "runs/", at_most=150)
_ROLLBACK = fates("rollback", "intents", "warehouse", "retired", "set_aside", "birth", "published", at_most=90)
_REPLAY = fates("replays", "intents", "warehouse", "quarantine", "runs/", at_most=120)
_MAINTAIN = fates("intents", "warehouse", "staging", "removed", "compacted", "ledger", "inbox", at_most=120)
_REPAIR = fates("set_aside", "birth", "published", "ledger", at_most=50)


def allowed(name: str, when: Callable[[Any], Any] = lambda self: True) -> Any:
    """A rule's precondition, unless the rule is left out."""
    return precondition(lambda self: name not in self.without and when(self))


class Pipeline(RuleBasedStateMachine):
    """One pipeline from its first record on."""

    without: frozenset[str] = frozenset()
    """Rules that are left out."""
    on_store = False
    """Whether the state is on an object store, and each command on one of two machines."""
    begun: tuple[str, tuple[int, int]] | None = None
    """The last backfill."""
    replayed: tuple[str, Selection] | None = None
    """The last replay."""
    steps_run = 0
    calls_run = 0

    @initialize(
        shape=st.sampled_from(["kafka", "files"]),
        batch_size=st.sampled_from([1000, 2]),
        decision=st.booleans(),
        on_critical=st.sampled_from(["hold", "continue"]),
    )
    def begin(self, shape: Shape, batch_size: int, decision: bool, on_critical: Any) -> None:
        on_critical = "hold" if "continue" in self.without else on_critical
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-model-", dir=ROOM))
        self.world = World(self.folder / "project", shape, self.patch, batch_size, on_critical)
        if self.on_store:
            put_on_store(self.world, self.patch)
        # So that a log of a few versions is compacted.
        self.patch.setattr("tidegate.rework.maintain.command.LOG_VERSIONS_AT_LEAST", 3)
        self.decision = "release" if decision else "discard"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.settle(self.decision)
            if "maintain" not in self.without:
                self.world.tend(source="keep" if "source" in self.without else "archive")
            if "replay" not in self.without:
                self.world.replay_all()
        finally:
            for line in self.world.log:
                note(line)
            Pipeline.calls_run += self.world.calls
            self.world.end()
            self.patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _meet(self, process: Process, fate: Fate) -> None:
        """What becomes of a process that was stopped."""
        if process.state == "stopped" and fate is not None:
            if fate[1] == "killed":
                self.world.kill(process)
            else:
                self.world.freeze(process)

    @rule(arrivals=ARRIVALS, fate=_RUN, ending=ENDINGS)
    def run(self, arrivals: list[tuple[int, list[str]]], fate: Fate, ending: str) -> None:
        """``tidegate run``, after some records more have come."""
        for partition, kinds in arrivals:
            self.world.offer(partition, kinds)
        ending = "" if "endings" in self.without else ending
        self._meet(self.world.run(self.world.new_run_id(ending), stop=fate and fate[0]), fate)

    @rule(arrivals=ARRIVALS, fate=_RUN)
    def run_steps(self, arrivals: list[tuple[int, list[str]]], fate: Fate) -> None:
        """The steps, as a DAG's tasks."""
        for partition, kinds in arrivals:
            self.world.offer(partition, kinds)
        self._meet(self.world.run_steps(self.world.new_run_id(), stop=fate and fate[0]), fate)

    @allowed("decide", lambda self: self.world.holds)
    @rule(fate=_DECISION, decision=st.sampled_from(["release", "discard", "reread"]), which=st.integers(0, 2))
    def decide(self, fate: Fate, decision: str, which: int) -> None:
        """Somebody decides on a held increment, or on one of those that wait alone."""
        held = sorted(self.world.holds)
        run_id = held[which % len(held)]
        self._meet(self.world.decide(decision, run_id, stop=fate and fate[0]), fate)

    @allowed("repair", lambda self: self.world.disagrees)
    @rule(fate=_REPAIR)
    def repair(self, fate: Fate) -> None:
        """``tidegate repair``."""
        self._meet(self.world.repair(stop=fate and fate[0]), fate)

    @allowed("backfill", lambda self: (self.world.paths.table / "_delta_log").exists())
    @rule(fate=_BACKFILL, days=st.sampled_from([(1, 1), (2, 2), (1, 2)]), again=st.booleans(), day_by_day=st.booleans())
    def backfill(self, fate: Fate, days: tuple[int, int], again: bool, day_by_day: bool) -> None:
        """``tidegate backfill``, perhaps the one that was begun before."""
        self.world.day_by_day = day_by_day
        if not again or self.begun is None:
            self.begun = (self.world.new_run_id(), days)
        run_id, (first, last) = self.begun
        stop = fate and fate[0]
        self._meet(self.world.backfill(run_id, f"2026-01-0{first}", f"2026-01-0{last}", stop=stop), fate)

    @allowed("refresh", lambda self: (self.world.paths.table / "_delta_log").exists())
    @rule(fate=_BACKFILL, keeps_older=st.booleans())
    def refresh(self, fate: Fate, keeps_older: bool) -> None:
        """``tidegate refresh``, perhaps with ``--keep-older``."""
        run_id = self.world.new_run_id()
        self._meet(self.world.refresh(run_id, keeps_older=keeps_older, stop=fate and fate[0]), fate)

    @allowed("backfill", lambda self: self.world.held_beside)
    @rule(fate=_BACKFILL, decision=st.sampled_from(["release", "discard"]))
    def decide_beside(self, fate: Fate, decision: Any) -> None:
        """Somebody decides on a backfill or a refresh that is held."""
        self._meet(self.world.decide_beside(decision, self.world.held_beside[0], stop=fate and fate[0]), fate)

    @allowed("replay", lambda self: self.world.in_quarantine())
    @rule(
        fate=_REPLAY,
        which=st.sampled_from(["all", "all", "of a run", "edited", "edited", "the last once more"]),
        mend=st.booleans(),
        data=st.data(),
    )
    def replay(self, fate: Fate, which: str, mend: bool, data: Any) -> None:
        """``tidegate quarantine replay``, perhaps after the schema was corrected, perhaps the one begun before."""
        if which != "the last once more" or self.replayed is None:
            self.replayed = (self.world.new_run_id(), self._select(which, data))
        self._meet(self.world.replay(*self.replayed, mend=mend, stop=fate and fate[0]), fate)

    def _select(self, which: str, data: Any) -> Selection:
        if which == "of a run":
            return Selection(QuarantineFilter(run_id=f"r{data.draw(st.integers(1, self.world.runs))}"))
        if which == "edited":
            there = sorted((text, id_) for id_, text in self.world.in_quarantine().items())
            some = data.draw(st.lists(st.sampled_from(there), min_size=1, max_size=3, unique=True))
            kinds = [data.draw(st.sampled_from(["good", "good", "poor", "malformed"])) for _ in some]
            return Selection(
                edits={id_: f"{text.partition(',')[0]},{kind}" for (text, id_), kind in zip(some, kinds, strict=True)}
            )
        return Selection()

    @allowed("maintain")
    @rule(
        fate=_MAINTAIN,
        at_once=st.booleans(),
        compacts=st.booleans(),
        source=st.sampled_from(["keep", "keep", "archive", "delete"]),
        retains=st.sampled_from([False, False, True]),
    )
    def maintain(self, fate: Fate, at_once: bool, compacts: bool, source: Any, retains: bool) -> None:
        """``tidegate maintain``: what is replaced, old or consumed goes ``at_once`` or in a week."""
        old: dict[str, Any] = {"reports": 0 if at_once else "90 days"}
        if retains and "expire" not in self.without:
            old["partitions"] = f"{self.world.age_of_first_day()} seconds"
        settings = MaintenanceSpec(
            keep_versions=0 if at_once else "7 days",
            compact_below="32 MiB" if compacts else 0,
            expire=ExpireSpec(**old),
            source="keep" if "source" in self.without else source,
        )
        self._meet(self.world.maintain(self.world.new_run_id("m"), settings, stop=fate and fate[0]), fate)

    @allowed("rollback", lambda self: newest_version(self.world.paths.table) > 0)
    @rule(fate=_ROLLBACK, versions=st.integers(1, 8), then=st.sampled_from(["reread", "leave-out"]))
    def rollback(self, fate: Fate, versions: int, then: Any) -> None:
        """``tidegate rollback``, some versions back."""
        version = max(0, newest_version(self.world.paths.table) - versions)
        self._meet(self.world.rollback(version, then, stop=fate and fate[0]), fate)

    @allowed("retain", lambda self: self.world.shape == "kafka")
    @rule(partition=st.sampled_from([0, 1]), share=st.sampled_from([0.3, 0.6, 1.0]))
    def retain(self, partition: int, share: float) -> None:
        """Retention takes a part of what a partition has."""
        begin, end = self.world.kafka.begin[partition], len(self.world.kafka.sent[partition])
        self.world.retain_from(partition, begin + round((end - begin) * share))

    @allowed("accept", lambda self: self.world.shape == "kafka")
    @rule(fate=_RUN)
    def accept(self, fate: Fate) -> None:
        """``tidegate run --accept-loss``."""
        self._meet(self.world.run(self.world.new_run_id(), accept="gone", stop=fate and fate[0]), fate)

    @allowed("thaw", lambda self: self.world.sleepers)
    @rule(fate=_RUN, data=st.data())
    def thaw(self, fate: Fate, data: Any) -> None:
        """A process that was frozen goes on."""
        number = data.draw(st.integers(0, len(self.world.sleepers) - 1))
        self._meet(self.world.thaw(number, stop=fate and fate[0]), fate)

    @allowed("retry", lambda self: self.world.finished)
    @rule(data=st.data())
    def retry(self, data: Any) -> None:
        """A run that is over is run again, under its run id."""
        self.world.retry(data.draw(st.sampled_from(sorted(self.world.finished))))

    @allowed("edit")
    @rule(what=st.sampled_from(sorted(EDITS)), seed=st.integers(0, 7))
    def edit(self, what: str, seed: int) -> None:
        """Somebody, or a late JVM, changes the checkpoint; what runs begin to do then is told by what they read."""
        if what not in self.without:
            edit(self.world, what, seed)

    @allowed("foreign", lambda self: newest_version(self.world.paths.table) >= 0)
    @rule(what=st.sampled_from(["append", "delete", "delete", "compact"]), seed=st.integers(0, 7))
    def write_as_another(self, what: str, seed: int) -> None:
        """Another engine changes the table's rows, or the files that hold them."""
        self.world.disturb(what, seed)

    @allowed("foreign", lambda self: newest_version(self.world.paths.table) >= 0)
    @rule(what=st.sampled_from(TENDS), seed=st.integers(0, 7))
    def tend_as_another(self, what: str, seed: int) -> None:
        """Another engine does what its owner thinks the table needs, or asks something of all who write it."""
        self.world.disturb(what, seed)

    @allowed("clock")
    @rule(seconds=st.sampled_from(STEPS))
    def set_clock(self, seconds: int) -> None:
        """The wall clock steps forward, or back."""
        self.world.set_clock(seconds)

    @allowed("cut")
    @rule(how=st.sampled_from(CUTS))
    def cut_power(self, how: Cut) -> None:
        """Everything that ran is over, and what was not synced is lost."""
        self.world.cut_power(how)

    @invariant()
    def readers_agree(self) -> None:
        if hasattr(self, "world"):
            Pipeline.steps_run += 1
            self.world.check()

"""Does the model find what it is there for? Each mutant is the program with one protection taken out of it.

    python -m tests.model.mutants [--seed 1] [NAME ...]

Runs the model against each, and says whether it was caught, after how many steps, and by which seed. The exit code is 1
when one was not. A mutant with a ``test`` is run against that test instead: the sweep of power cuts, or scenes of what
the model meets too seldom.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_CUTS = "tests/model/test_unsynced.py"
_BESIDE = ("replay", "refresh", "maintain", "continue")
_STEPS = re.compile(r"([\d,]+) steps, [\d,]+ storage calls, seeds \d+ to (\d+)")
_FAILED = re.compile(r"^FAILED (.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """A text of one file under src/tidegate, which is there exactly once, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """``without``: rules of the model that have nothing to do with it, and are left out to be quicker; those of work
    beside the runs are too, unless it is about them (``beside``). ``seconds`` of CPU time are spent on looking for it,
    at most."""

    name: str
    changes: tuple[Change, ...]
    without: str = ""
    seconds: float = 300.0
    test: str = ""
    beside: bool = False


MUTANTS = (
    Mutant(
        "the pending offsets begin after the batch in flight",
        (
            Change(
                "sources/kafka/source.py",
                "        if last is not None and so_far.in_flight is None:\n",
                "        if last is not None:\n",
            ),
        ),
        "edit,decide,endings,retry,cut",
    ),
    Mutant(
        "a recorded decision waits for the command that took it",
        (
            Change(
                "runs/gate/decisions.py",
                'if one[1].decision != "reread"]',
                'if one[1].decision != "reread" and one[1].run_id == context.report.run_id]',
            ),
            Change(
                "runs/gate/increment.py",
                "        raise errors.DECISION_PENDING(",
                "        continue\n        raise errors.DECISION_PENDING(",
            ),
        ),
        "edit,accept,retain,retry,cut",
    ),
    Mutant(
        "decisions lie among the verdicts, told apart by their names",
        (
            Change(
                "core/paths.py",
                'decision = _OfRun("decisions/{}.json")',
                'decision = _OfRun("verdicts/{}.decision.json")',
            ),
            Change(
                "runs/reports/verdicts.py",
                'return storage.list_folder(folder, "[!.]*.json")',
                'found = storage.list_folder(folder, "[!.]*.json")\n'
                '    return [path for path in found if not path.name.endswith(".decision.json")]',
            ),
        ),
        "edit,accept,retain,retry,cut",
    ),
    Mutant(
        "a batch that was staged after its query was over counts",
        (
            Change(
                "runs/preflight/facts.py",
                "return last is not None and manifest.batch_id > max(last, self.settled_up_to(manifest.query_id))",
                "return False",
            ),
            Change(
                "table/log/commit.py",
                "if first_refused is not None and batch_id >= first_refused:",
                "if not table:",
            ),
        ),
        "accept,retain,endings,retry,cut",
    ),
    Mutant(
        "an accepted loss leaves no tombstone for the batch in flight",
        (
            Change(
                "runs/restart/new_query.py",
                "in_flight):\n        return None\n",
                "in_flight) and False:\n        return None\n",
            ),
            Change(
                "state/manifest.py",
                "    return storage.put_if_absent(path, storage.dump_json(tombstone)) or is_tombstone(path)",
                "    return bool(tombstone)",
            ),
            Change(
                "runs/preflight/facts.py",
                "return last is not None and manifest.batch_id > max(last, self.settled_up_to(manifest.query_id))",
                "return False",
            ),
            Change(
                "table/log/commit.py",
                "if first_refused is not None and batch_id >= first_refused:",
                "if not table:",
            ),
        ),
        "edit,decide,endings,retry,cut",
    ),
    Mutant(
        "the content of the checkpoint is believed",
        (
            Change(
                "runs/preflight/agreement.py",
                "(check_checkpoint, check_content, check_place)",
                "(check_checkpoint, check_place)",
            ),
            Change("runs/preflight/agreement.py", "    check_content(facts, name)\n    _check_spec", "    _check_spec"),
        ),
        "decide,endings,accept,retain,retry,cut",
    ),
    Mutant(
        "the last manifest of a batch wins, not the first",
        (
            Change(
                "state/manifest.py",
                "    return storage.put_if_absent(path, manifest_to_json(manifest))",
                "    storage.replace(path, manifest_to_json(manifest))\n    return True",
            ),
        ),
        "edit,endings,accept,retain,retry,cut",
    ),
    Mutant(
        "the log takes a batch twice",
        (
            Change(
                "table/log/commit.py",
                "    if table.last_batch(commit.app_id) != commit.app_version_before:",
                "    if not table:",
            ),
            Change(
                "table/publish/publish.py",
                "    current = -1 if state is None else state.txns.get(intent.app_id, -1)\n",
                "    current = intent.app_version_before\n",
            ),
        ),
        "edit,endings,accept,retain,retry,cut",
    ),
    Mutant(
        "a process that lost its lease goes on",
        (
            Change(
                "state/lease.py",
                "    if not _is_highest(paths, token):\n        return False\n    return _read_state",
                "    return _read_state",
            ),
        ),
        "endings,retry,cut",
    ),
    Mutant(
        "a publish that was planned late is carried out",
        (
            Change(
                "runs/recovery/recover.py",
                "drop_late_intents(paths, pending_intents(paths), lease)",
                "pending_intents(paths)",
            ),
        ),
        "edit,endings,accept,retain,decide,retry,cut",
        seconds=900.0,
    ),
    Mutant(
        "a decision counts for one of two verdicts on the same batches",
        (
            Change(
                "runs/gate/increment.py",
                "        if decision is not None and (theirs",
                "        if not verdict and (theirs",
            ),
        ),
        "edit,endings,accept,retain,retry,cut",
        seconds=900.0,
    ),
    Mutant(
        "a query has its name when the run is over",
        (Change("spark/ingest/stage.py", "        name_query(self.paths, manifest.query_id)", "        pass"),),
        "decide,endings,accept,retain,retry,cut",
    ),
    Mutant(
        "a replayed record stays in quarantine",
        (
            Change(
                "rework/replay/command.py",
                "plan_quarantine = partial(_plan_quarantine, context, choice, manifests, folder)",
                "plan_quarantine = lambda work, token: None",
            ),
        ),
        "edit,endings,accept,retain,retry,cut,maintain,refresh,backfill,rollback",
        beside=True,
    ),
    Mutant(
        "a decision on an increment that waits alone has another id each time",
        (
            Change(
                "runs/reports/verdicts.py",
                'f"{self.run_id} {query_id} {batch_id}").app_id',
                'f"{self.run_id} {id(self)} {batch_id}").app_id',
            ),
        ),
        "edit,endings,accept,retain,retry,cut,maintain,refresh,backfill,rollback,replay",
        beside=True,
    ),
    Mutant(
        "a compaction goes by files that are not there any more",
        (
            Change(
                "rework/maintain/compact.py", "replace(change, table_files=files)", "replace(change, table_files=None)"
            ),
        ),
        "edit,endings,accept,retain,retry,cut,rollback,replay",
        seconds=900.0,
        beside=True,
    ),
    Mutant(
        "the older part of a table may have files in common with the rest",
        (
            Change(
                "rework/backfill/older.py",
                "        if not mixed:\n            return edge\n",
                "        return edge\n",
            ),
        ),
        "edit,endings,accept,retry,cut,thaw",
        beside=True,
    ),
    Mutant(
        "maintenance believes any clock",
        (
            Change(
                "rework/maintain/command.py",
                "            clock = find_clock_fault(context.paths, time.time())\n",
                "            clock = find_clock_fault(context.paths, time.time()) and None\n",
            ),
        ),
        "edit,endings,accept,retain,retry,cut,rollback,replay,repair,decide,foreign",
        beside=True,
    ),
    Mutant(
        "what another engine left behind stays in sight",
        (Change("runs/recovery/upkeep.py", "        hide_left_behind(path, left, lease.check)\n", ""),),
        "edit,endings,accept,retain,retry,cut,clock,rollback,replay,repair,decide",
        beside=True,
    ),
    Mutant(
        "a replaced file is as old under its hidden name",
        (
            Change(
                "table/publish/replace.py",
                "            storage.refresh_time(path)\n",
                "            pass\n",
            ),
        ),
        test="tests/model/test_foreign.py::test_found",
    ),
    Mutant(
        "files of batches that nobody has are not missed",
        (
            Change(
                "runs/preflight/agreement.py",
                "for batch in staged if batch > newest)",
                "for batch in staged if not facts)",
            ),
        ),
        test="tests/model/test_unusable_checkpoint.py",
    ),
    Mutant(
        "what a driver has staged by an exchanged checkpoint counts",
        (Change("runs/preflight/agreement.py", "if read & links or any(", "if not facts and any("),),
        test="tests/model/test_unusable_checkpoint.py",
    ),
    Mutant(
        "a new query begins where another one has ended",
        (Change("runs/preflight/agreement.py", "find_end(paths, of_query=query_id)", "find_end(paths)"),),
        test="tests/model/test_unusable_checkpoint.py",
    ),
    Mutant(
        "a batch that a stale driver stages before a new query is read again",
        (Change("runs/restart/new_query.py", "last = facts.next_to_stage", "last = facts.in_flight"),),
        test="tests/model/test_unusable_checkpoint.py",
    ),
    Mutant(
        "files of a batch that was staged before a new query are pending",
        (
            Change(
                "runs/restart/new_query.py", "    if begun is None:\n        sync", "    if not context:\n        sync"
            ),
        ),
        test="tests/model/test_unusable_checkpoint.py",
    ),
    Mutant(
        "a log that was cut has no positions below",
        (
            Change(
                "runs/preflight/table_log.py",
                '    raise log_is_cut(paths.table, cut_at, "the offsets up to which it holds each topic")\n',
                "    return LogEnd()\n",
            ),
        ),
        test="tests/model/test_cut_log.py",
    ),
    Mutant(
        "a manifest is on disk before the checkpoint",
        (
            Change(
                "spark/ingest/stage.py",
                "        self.checkpoint_sync.sync_batch(manifest.batch_id)\n        self.check_lease()",
                "        self.check_lease()",
            ),
        ),
        test=_CUTS,
    ),
    Mutant(
        "torn plans stay",
        (
            Change(
                "runs/recovery/recover.py", "(sweep_late, _sweep_swept, _heal_checkpoint)", "(sweep_late, _sweep_swept)"
            ),
        ),
        test=_CUTS,
    ),
    Mutant(
        "a first publish does not sync the folders above its table",
        (
            Change(
                "table/publish/publish.py", "storage.make_folder(folder)", "folder.mkdir(parents=True, exist_ok=True)"
            ),
        ),
        test=_CUTS,
    ),
)


def mutate(mutant: Mutant, target: Path) -> None:
    """A copy of the sources in ``target``, with the mutant's changes. Raises ValueError for one that no longer fits."""
    shutil.copytree(_ROOT / "src", target)
    for change in mutant.changes:
        path = target / "tidegate" / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise ValueError(f"{mutant.name}: {change.file} has this {text.count(change.old)} times: {change.old!r}")
        path.write_text(text.replace(change.old, change.new))


def run_mutant(mutant: Mutant, seed: int) -> str | None:
    """How it was caught; None when it was not."""
    with tempfile.TemporaryDirectory(prefix="tidegate-mutant-") as folder:
        sources = Path(folder) / "src"
        mutate(mutant, sources)
        command = [sys.executable, "-m", "tests.model.hunt", "--seconds", str(mutant.seconds), "--seed", str(seed)]
        beside = () if mutant.beside else _BESIDE
        command += ["--without", ",".join((mutant.without, *beside))]
        if mutant.test:
            command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", mutant.test]
        environment = {**os.environ, "PYTHONPATH": str(sources), "TIDEGATE_SWEEP": "9"}
        done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    if mutant.test:
        if (failed := _FAILED.search(done.stdout)) is None:
            raise RuntimeError(f"{mutant.name}: {mutant.test} could not be run\n{done.stdout[-2000:]}")
        return f"by {failed[1]}"
    found = _STEPS.search(done.stdout)
    lines = done.stdout.strip().splitlines()
    if found is None or len(lines) < 2:
        raise RuntimeError(f"{mutant.name}: the model could not be run\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return f"after {found[1]} steps, seed {found[2]}: {lines[-2][:110]}"


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", help="parts of names; all mutants by default")
    chosen = parser.parse_args(arguments)
    missed = 0
    for mutant in MUTANTS:
        if chosen.names and not any(name in mutant.name for name in chosen.names):
            continue
        began = time.monotonic()
        caught = run_mutant(mutant, chosen.seed)
        missed += caught is None
        print(f"{'caught' if caught else 'MISSED'} {time.monotonic() - began:5.0f} s  {mutant.name}", flush=True)
        if caught:
            print(f"                {caught}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

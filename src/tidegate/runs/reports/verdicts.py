"""Verdicts on increments, decisions on held ones, and deferred increments.

A verdict file is the increment's identity: it names the run that audited it and the batches it covers. It lives until
those batches are settled, so the verdicts folder holds what is open and nothing else. A decision names the same
batches: it counts for the verdict that it was taken on, and for no other of the same run id.

With ``on_critical: continue`` later runs pass a held increment, and a person decides on each: the table's log has moved
on past its batches, in a commit without rows that says ``waiting``. What a decision needs is in one file per run: the
verdict and the manifests. Their staged files stay where they are, because that file names them. What is decided is
published under an id made from the increment: the log takes it once.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from tidegate.core import storage
from tidegate.core.errors import HeldError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import is_wordless
from tidegate.runs import errors
from tidegate.state.manifest import (
    BatchKey,
    BatchManifest,
    batch_keys,
    keys_from_json,
    manifest_from_json,
    manifest_to_json,
)
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.plan import RELEASE, Rework

if TYPE_CHECKING:
    from tidegate.core import outputs
    from tidegate.core.outputs import Quality

Ruling = Literal["release", "discard", "reread"]


@dataclass(frozen=True)
class StoredVerdict:
    """The gate's verdict on the increment of ``run_id``."""

    run_id: str
    batches: list[BatchKey]
    quality: Quality
    failed_critical: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    at: str = ""
    folds: list[str] = field(default_factory=list)
    """Which findings of what remains of the batches it is on (update and complete mode)."""
    rules: str = ""
    """Digest of the suite and the limits that it was judged by."""

    @property
    def passed(self) -> bool:
        """Whether nothing critical failed."""
        return not self.failed_critical

    def covers(self, manifests: Sequence[BatchManifest]) -> bool:
        """Whether it speaks of exactly these batches."""
        return batch_keys(manifests) == sorted(self.batches)

    def choose(self, manifests: Sequence[BatchManifest]) -> list[BatchManifest]:
        """Those of the manifests that it speaks of."""
        return [manifest for manifest in manifests if manifest.key in self.batches]

    def comes_next(self, unpublished: Sequence[BatchManifest]) -> bool:
        """Whether those of its batches that are unpublished can be published before all others: none before them is
        left."""
        last: dict[str, int] = {}
        for manifest in self.choose(unpublished):
            last[manifest.query_id] = max(last.get(manifest.query_id, -1), manifest.batch_id)
        before = [manifest for manifest in unpublished if manifest.batch_id <= last.get(manifest.query_id, -1)]
        return bool(before) and len(self.choose(before)) == len(before)


@dataclass(frozen=True)
class Decision:
    """What a person decided on the held increment of ``run_id``: ``batches`` and ``folds`` are those of its verdict."""

    run_id: str
    decision: Ruling
    who: str
    reason: str
    at: str
    batches: list[BatchKey]
    folds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.decision not in get_args(Ruling):  # of another version: it must not be taken for a release
            raise ValueError(f"{self.decision!r} is not a decision")

    def is_on(self, verdict: StoredVerdict) -> bool:
        """Whether it was taken on this verdict: a run id whose increment was judged again is decided on again."""
        return (self.run_id, sorted(self.batches), self.folds) == (
            verdict.run_id,
            sorted(verdict.batches),
            verdict.folds,
        )

    def to_report(self) -> outputs.Ruling:
        """As the run report and the table's commit carry it."""
        return {"decision": self.decision, "who": self.who, "reason": self.reason, "at": self.at}


def check_reason(reason: str | None, action: str = "a decision", option: str = "--reason") -> None:
    """Raise UsageError REASON_MISSING for a reason that says nothing; None for an option that was not given."""
    if reason is not None and is_wordless(reason):
        raise errors.REASON_MISSING(action=action, option=option)


@dataclass(frozen=True)
class Answer:
    """A person's decision on held work; ``who`` is by default the person at this terminal."""

    decision: Ruling
    reason: str
    who: str | None = None

    def decide_on(self, verdict: StoredVerdict) -> Decision:
        """The decision on a verdict, made now."""
        who, reason = self.who or name_person(), self.reason.strip()
        judged, folds = sorted(verdict.batches), list(verdict.folds)
        return Decision(verdict.run_id, self.decision, who, reason, now_text(), judged, folds)


_Kind = TypeVar("_Kind", StoredVerdict, Decision)


def save_verdict(paths: PipelinePaths, verdict: StoredVerdict) -> None:
    """Store a verdict."""
    storage.replace(paths.verdict(verdict.run_id), storage.dump_json({"kind": "verdict", **asdict(verdict)}))


def load_verdict(paths: PipelinePaths, run_id: str) -> StoredVerdict | None:
    """The verdict on a run's increment, or None. Raises DisagreementError STATE_FILE_MISPLACED."""
    return _read(paths.verdict(run_id), StoredVerdict, paths.verdict)


def list_verdicts(paths: PipelinePaths) -> list[StoredVerdict]:
    """All open verdicts. Raises DisagreementError STATE_FILE_MISPLACED."""
    found = [_read(path, StoredVerdict, paths.verdict) for path in _files(paths.verdicts)]
    return [verdict for verdict in found if verdict is not None]


def save_decision(paths: PipelinePaths, decision: Decision) -> None:
    """Record a decision. The first one on a verdict is kept; one on an earlier verdict of the run id gives way."""
    path, data = paths.decision(decision.run_id), storage.dump_json({"kind": "decision", **asdict(decision)})
    while not storage.put_if_absent(path, data):
        with contextlib.suppress(FileNotFoundError):
            there = storage.read(path)
            found = _read(path, Decision, paths.decision)
            if found is not None and (sorted(found.batches), found.folds) == (
                sorted(decision.batches),
                decision.folds,
            ):
                return
            storage.take_away(path, there)  # not what another process has recorded since


def load_decision(paths: PipelinePaths, verdict: StoredVerdict) -> Decision | None:
    """The decision on this very verdict, or None. Raises DisagreementError STATE_FILE_MISPLACED."""
    found = _read(paths.decision(verdict.run_id), Decision, paths.decision)
    return found if found is not None and found.is_on(verdict) else None


def list_decided(paths: PipelinePaths) -> list[tuple[StoredVerdict, Decision]]:
    """The verdicts that a person has decided on, each with the decision: to be carried out before anything else."""
    decided = [(verdict, load_decision(paths, verdict)) for verdict in list_verdicts(paths) if not verdict.passed]
    return [(verdict, decision) for verdict, decision in decided if decision is not None]


def list_rereads(paths: PipelinePaths) -> list[Decision]:
    """The decisions to read an increment again, which stay until that has begun; its verdict may be gone by then."""
    found = [_read(path, Decision, paths.decision) for path in _files(paths.decisions)]
    return [one for one in found if one is not None and one.decision == "reread"]


def forget_settled(paths: PipelinePaths, settled_up_to: Callable[[str], int]) -> None:
    """Remove what speaks only of batches that the table's log holds, decisions first: none may outlive its verdict.

    ``settled_up_to`` gives the last batch of a query that the log holds.
    """
    for path in _files(paths.decisions):
        decision = _read(path, Decision, paths.decision)
        if decision is not None and are_settled(decision.batches, settled_up_to):
            forget(paths, decision)
    for verdict in list_verdicts(paths):
        if are_settled(verdict.batches, settled_up_to):
            forget(paths, verdict)


def forget(paths: PipelinePaths, one: _Kind) -> None:
    """Remove this verdict or decision; a later one of the same run id stays."""
    path = (paths.verdict if isinstance(one, StoredVerdict) else paths.decision)(one.run_id)
    with contextlib.suppress(FileNotFoundError):
        data = storage.read(path)
        if _parse(data, type(one)) == one:
            storage.take_away(path, data)


def are_settled(batches: Sequence[BatchKey], settled_up_to: Callable[[str], int]) -> bool:
    """Whether the table's log holds all of these batches."""
    return all(batch_id <= settled_up_to(query_id) for query_id, batch_id in batches)


def find_hold(paths: PipelinePaths, unpublished: Sequence[BatchManifest]) -> StoredVerdict | None:
    """The failed verdict on some unpublished batch that nobody has decided on yet."""
    for verdict in list_verdicts(paths):
        if not verdict.passed and verdict.choose(unpublished) and load_decision(paths, verdict) is None:
            return verdict
    return None


def held_error(name: str, verdict: StoredVerdict, *, earlier: bool) -> HeldError:
    """The error of a held increment: which rule, how many rows, and the three commands."""
    what = "; ".join(verdict.reasons) or ", ".join(verdict.failed_critical)
    quoted = quote_word(verdict.run_id)
    is_share = "max_quarantine_share" in verdict.failed_critical
    causes = f"; every cause, with an example: tidegate quarantine list {name}" if is_share else ""
    entry = errors.EARLIER_INCREMENT_HELD if earlier else errors.INCREMENT_HELD
    return entry(
        where=f"run {verdict.run_id} of pipeline {name}; the table is untouched",
        reasons=what,
        pipeline=name,
        run_id=quoted,
        causes=causes,
    )


def not_audited(name: str, run_id: str, why: str = "it has no verdict, or was staged again since") -> TryAgainError:
    """The error of a publish whose increment nobody has judged as it is now, by the rules as they are now."""
    return errors.NOT_AUDITED(
        where=f"pipeline {name}", run_id=run_id, why=why, name=name, quoted_run_id=quote_word(run_id)
    )


def _files(folder: Path) -> list[Path]:
    return storage.list_folder(folder, "[!.]*.json")


def _read(path: Path, kind: type[_Kind], place: Callable[[str], Path]) -> _Kind | None:
    """The value in ``path``, None without the file. One of another kind, of another run, or with a decision that is
    unknown here is refused: what it says about the gate must not be guessed."""
    word = "verdict" if kind is StoredVerdict else "decision"
    try:
        found = _parse(storage.read(path), kind)
        if found is not None and place(found.run_id) == path:
            return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, AttributeError, KeyError):
        pass
    raise errors.STATE_FILE_MISPLACED(where=str(path), path=path.name, word=word, quoted_path=shlex.quote(str(path)))


def _parse(data: bytes, kind: type[_Kind]) -> _Kind | None:
    """The value in a file; None for one of another kind. Raises ValueError, TypeError, AttributeError, KeyError."""
    word = "verdict" if kind is StoredVerdict else "decision"
    value = json.loads(data)
    if value.pop("kind", word) != word:
        return None
    return kind(**value | {"batches": keys_from_json(value["batches"])})


def quote_word(text: str) -> str:
    """A word of a command as a shell takes it; one of plain characters as it is."""
    return text if all(char.isalnum() or char in "_-.:+@=" for char in text) else shlex.quote(text)


WAITED = "tidegate.waited"
"""In the commit of a decision: the batches that it is on, [query id, first, last] for each query."""


@dataclass(frozen=True)
class WaitingIncrement:
    """A deferred increment: ``manifests`` are those of its verdict, ``since`` is when it was passed, ``begun`` is the
    outcome of the decision that is being carried out."""

    verdict: StoredVerdict
    manifests: list[BatchManifest]
    since: str
    begun: Literal["published", "discarded"] | None = None

    @property
    def run_id(self) -> str:
        """The run that it was held under."""
        return self.verdict.run_id

    @property
    def app_id(self) -> str:
        """What the commit of the decision carries in the place of a query id: the same for these batches, whoever
        decides what."""
        query_id, batch_id = self.manifests[-1].key
        return Rework(self.manifests[-1].pipeline, RELEASE, f"{self.run_id} {query_id} {batch_id}").app_id

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """(query id, first batch, last batch) for each query."""
        batches: dict[str, list[int]] = {}
        for query_id, batch_id in (one.key for one in self.manifests):
            batches.setdefault(query_id, []).append(batch_id)
        return [(query_id, min(some), max(some)) for query_id, some in batches.items()]

    @property
    def attempts(self) -> set[str]:
        """The folders of its staged files, relative to the state folder."""
        files = [file for one in self.manifests for file in (*one.files, *one.quarantine_files)]
        return {str(Path(*Path(file.path).parts[:4])) for file in files}


def save_waiting(paths: PipelinePaths, waiting: WaitingIncrement) -> None:
    """Store it; the file is whole or not there."""
    value = {
        "verdict": asdict(waiting.verdict),
        "manifests": [json.loads(manifest_to_json(one)) for one in waiting.manifests],
        "since": waiting.since,
        "begun": waiting.begun,
    }
    storage.replace(paths.waiting_increment(waiting.run_id), storage.dump_json(value))


def load_waiting(paths: PipelinePaths, run_id: str) -> WaitingIncrement | None:
    """The deferred increment of this run, or None."""
    return _read_waiting(paths.waiting_increment(run_id))


def list_waiting(paths: PipelinePaths) -> list[WaitingIncrement]:
    """All that wait, the longest first."""
    found = [_read_waiting(path) for path in storage.list_folder(paths.waiting, "[!.]*.json")]
    return sorted((one for one in found if one is not None), key=lambda one: one.since)


def list_kept_attempts(paths: PipelinePaths) -> set[str]:
    """The attempt folders, relative to the state folder, that belong to deferred increments."""
    return {attempt for one in list_waiting(paths) for attempt in one.attempts}


def list_waiting_undecided(paths: PipelinePaths) -> list[WaitingIncrement]:
    """Those that the table's log holds no decision on; one that was decided is cleared away by the next run."""
    found = list_waiting(paths)
    decided = find_decided(paths, found)
    return [one for one in found if one.app_id not in decided]


def find_decided(paths: PipelinePaths, waiting: Collection[WaitingIncrement]) -> set[str]:
    """The app ids of those that the table's log holds a decision on."""
    if not waiting:
        return set()
    state = read_table_state(paths.table, tuple(sorted(one.app_id for one in waiting)))
    return set() if state is None else {one.app_id for one in waiting if state.txns.get(one.app_id, -1) >= 0}


def waiting_error(name: str, verdict: StoredVerdict) -> HeldError:
    """The error of a deferred increment: the rule, that later runs continue, and the commands."""
    return errors.INCREMENT_WAITS(
        where=f"run {verdict.run_id} of pipeline {name}; the table is untouched",
        reasons="; ".join(verdict.reasons) or ", ".join(verdict.failed_critical),
        pipeline=name,
        run_id=quote_word(verdict.run_id),
    )


def _read_waiting(path: Path) -> WaitingIncrement | None:
    value = storage.read_json(path)
    if value is None:
        return None
    with storage.unreadable_is_named(path):
        verdict = StoredVerdict(**{**value["verdict"], "batches": keys_from_json(value["verdict"]["batches"])})
        manifests = [manifest_from_json(json.dumps(one)) for one in value["manifests"]]
        return WaitingIncrement(verdict, manifests, str(value["since"]), value.get("begun"))

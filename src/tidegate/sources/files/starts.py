"""Where file sources start (``start``): what the first look passed over, and what became of the key since.

The first run that lists a source marks what was there before its start as taken, in one transaction of the ledger. From
then on the ledger alone counts: a later change of the key reads nothing and leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.core.errors import DisagreementError, TidegateError, catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.ledger import Ledger, Start, open_ledger
from tidegate.sources.files.scan import FilesScan, start_ns
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import BeforeStart

NAMED_AT_MOST = 100
"""Files that were there before a source's start, which a report names one by one; it counts them all."""


def summarise_start(name: str, source: FilesSource, scan: FilesScan, ledger: Ledger) -> BeforeStart | None:
    """What was there before the source's start, as ``plan`` and the report show it; None when there was nothing."""
    began = scan.began
    value: BeforeStart
    if began is None:
        earlier = scan.before_start
        value = {"start": source.start, "at": None, "files": len(earlier), "bytes": sum(one.size for one in earlier)}
        value["paths"] = sorted(one.path for one in earlier)[:NAMED_AT_MOST]
    else:
        value = {"start": began.start, "at": began.at, "files": began.files, "bytes": began.bytes}
        if not began.told:
            value["paths"] = ledger.before_start(name, NAMED_AT_MOST)
    return value if value["files"] else None


def describe_start(name: str, earlier: BeforeStart) -> str:
    """What was there before a source's start, in a sentence."""
    size = f"{count_of(earlier['files'], 'file')} ({count_of(earlier['bytes'], 'byte')})"
    what = f"source {name} starts at {earlier['start']}: {size}"
    is_one = earlier["files"] == 1
    if earlier["at"] is None:
        told = "is there before that; with the next run it counts as taken, and it is not read"
        if not is_one:
            told = "are there before that; with the next run they count as taken, and they are not read"
        return f"{what} {told}"
    they, counts = ("was", "it counts as taken and was") if is_one else ("were", "they count as taken and were")
    return f"{what} {they} there before that, first {earlier['paths'][0]}; {counts} not read"


def describe_change(name: str, source: FilesSource, began: Start | None) -> str | None:
    """What to know when ``start`` says something else than at the first look; None when it does not."""
    if began is None or start_ns(began.start) == start_ns(source.start):
        return None
    looked = f"source {name}: start is {source.start}, and was {began.start} when the source was first looked at"
    looked += f" ({began.at})" if began.at else ""
    return f"{looked}; that look alone counts: the change reads nothing and leaves nothing out"


def list_changed_starts(project: Project, names: Sequence[str] | None) -> list[str]:
    """:func:`describe_change` of every source of these pipelines (None: of all), for ``validate``."""
    notes = []
    for pipeline in names or list_pipelines(project):
        try:
            spec, paths = load_pipeline(project, pipeline), project.paths(pipeline)
            with open_ledger(paths, read_only=True) as ledger:
                streams = spec.file_streams.items()
                told = (describe_change(name, one, ledger.start_of(name)) for name, one in streams)
                notes += [f"{pipeline}: {note}" for note in told if note is not None]
        except (TidegateError, OSError):
            continue  # a fault of the spec is named as one, and a ledger is not validate's to judge
    return notes


def check_starts_known(spec: PipelineSpec, paths: PipelinePaths) -> None:
    """For a rebuild: whether skipped files can be distinguished from those to be read.

    Raises DisagreementError START_UNKNOWN where a source starts ``now`` and the record of its first look is lost:
    another look would pass over everything that the old table was made of.
    """
    at_risk = [name for name, one in spec.file_streams.items() if one.start == "now"]
    if not at_risk:
        return
    try:
        with open_ledger(paths, read_only=True) as ledger:
            if ledger.last_id() or any(ledger.start_of(name) is not None for name in at_risk):
                return
    except DisagreementError:
        pass
    raise catalogue.START_UNKNOWN(
        where=f"{paths.spec}: sources.{at_risk[0]}.start; {paths.ledger}",
        first_at_risk=at_risk[0],
        name=paths.ledger.name,
        pipeline=paths.name,
    )

"""Feeding one sink: each version that it is owed, in order, noted once it was taken whole.

Driven by the table's log and the sink's note alone, so it does not matter which run published a version, or how often
a process died in between: a version may come twice, none is passed over. A sink whose rows are of another table gets
the whole table as one version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.sinks.fault import SinkFault, explain_fault
from tidegate.sinks.progress import find_fed, note_begun, note_fed
from tidegate.spec.models import SinkSpec
from tidegate.table.log.state import TableState
from tidegate.table.publish.delivery import Delivery, deliver_whole, list_deliveries


class Feeder(Protocol):
    """Hands the rows of one version to a sink, all of them, and returns when the sink has them for good."""

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed one version, asking ``check_lease`` before each part that the sink can see by itself (a file's rows, a
        transaction): it raises when another process has taken over. Whatever is raised means that the version comes
        again."""

    def close(self) -> None:
        """Let go of what was opened."""


def list_owed(paths: PipelinePaths, sink: SinkSpec, table: TableState) -> list[Delivery]:
    """The versions that a sink has not had, oldest first; none for a sink that was not begun yet.

    Raises SinkFault when the log no longer has the versions that the sink is behind.
    """
    fed = find_fed(paths, sink.name, table)
    if fed is None:
        return []
    if fed.gets_whole:
        return [replace(deliver_whole(paths.table, table.version), offset=table.offset)]
    try:
        return list(list_deliveries(paths.table, fed.version, table.version, fed.had - fed.version))
    except DisagreementError as gone:
        of_table = "" if fed.had == fed.version else f" (version {fed.version} of the table)"
        raise SinkFault(
            f"it was fed up to version {fed.had}{of_table}, and {gone.message}",
            where=gone.where,
            fix=f"bring back the commit file; or feed the sink from the table itself, then remove "
            f"{paths.sink(sink.name)}: it then starts with the next version",
        ) from gone


def feed_sink(
    paths: PipelinePaths,
    sink: SinkSpec,
    table: TableState,
    make_feeder: Callable[[], Feeder],
    *,
    run_id: str,
    check_lease: Callable[[], None],
) -> None:
    """Feed all versions that the sink is behind. ``check_lease`` raises when another process has taken over; it is
    asked before each version and before each note. Raises SinkFault, naming the version, when the sink or the user's
    code failed.
    """
    owed = list_owed(paths, sink, table)
    if owed:
        _feed(paths, sink, table, owed, make_feeder, run_id=run_id, check_lease=check_lease)
    fed = find_fed(paths, sink.name, table)
    if fed is not None and fed.version < table.version:  # what comes after the last version with rows owes nothing
        check_lease()
        note_fed(paths, sink.name, table, table.version, table.offset, run_id)


def _feed(
    paths: PipelinePaths,
    sink: SinkSpec,
    table: TableState,
    owed: Sequence[Delivery],
    make_feeder: Callable[[], Feeder],
    *,
    run_id: str,
    check_lease: Callable[[], None],
) -> None:
    feeder: Feeder | None = None
    number = owed[0].number
    try:
        feeder = make_feeder()
        for delivery in owed:
            number = delivery.number
            check_lease()
            note_begun(paths, sink.name, table, delivery.version, delivery.offset, run_id)
            feeder(delivery, check_lease)
            check_lease()
            note_fed(paths, sink.name, table, delivery.version, delivery.offset, run_id)
    except TidegateError:
        raise  # the lease is lost, the disk is full, the run was stopped: nothing that the sink did
    except (Exception, SystemExit) as error:
        fault = explain_fault(error, paths.job)
        raise SinkFault(f"version {number}: {fault.message}", where=fault.where, fix=fault.fix) from error
    finally:
        if feeder is not None:
            feeder.close()

"""Feed one sink: each pending version in order, noted once the sink has all of it.

Only the table's log and the sink's note decide what is pending, so it does not matter which run published a version, or
how often a process died in between: a version may be delivered twice, and none is skipped. A sink that was fed from
another table gets the whole table as one version.
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
    """Sends all rows of one version to a sink, and returns when the sink has stored them durably."""

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed one version.

        Call ``check_lease`` before each part that the sink can see separately (a file's rows, a transaction): it raises
        when another process has taken over. After any exception the version is delivered again."""

    def close(self) -> None:
        """Release what was opened."""


def list_pending_versions(paths: PipelinePaths, sink: SinkSpec, table: TableState) -> list[Delivery]:
    """List the versions that a sink does not have yet, oldest first; none for a sink that was never started.

    Raises SinkFault when the log no longer has these versions.
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
            fix=f"restore the commit file; or feed the sink from the table itself, then remove "
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
    """Feed all pending versions to the sink.

    ``check_lease`` raises when another process has taken over; it is called before each version and before each note.
    Raises SinkFault, naming the version, when the sink or the user's code failed.
    """
    pending = list_pending_versions(paths, sink, table)
    if pending:
        _feed(paths, sink, table, pending, make_feeder, run_id=run_id, check_lease=check_lease)
    fed = find_fed(paths, sink.name, table)
    if fed is not None and fed.version < table.version:  # versions after the last one with rows have nothing to deliver
        check_lease()
        note_fed(paths, sink.name, table, table.version, table.offset, run_id)


def _feed(
    paths: PipelinePaths,
    sink: SinkSpec,
    table: TableState,
    pending: Sequence[Delivery],
    make_feeder: Callable[[], Feeder],
    *,
    run_id: str,
    check_lease: Callable[[], None],
) -> None:
    feeder: Feeder | None = None
    number = pending[0].number
    try:
        feeder = make_feeder()
        for delivery in pending:
            number = delivery.number
            check_lease()
            note_begun(paths, sink.name, table, delivery.version, delivery.offset, run_id)
            feeder(delivery, check_lease)
            check_lease()
            note_fed(paths, sink.name, table, delivery.version, delivery.offset, run_id)
    except TidegateError:
        raise  # the lease is lost, the disk is full, the run was stopped: not the sink's fault
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        fault = explain_fault(error, paths.job)
        raise SinkFault(f"version {number}: {fault.message}", where=fault.where, fix=fault.fix) from error
    finally:
        if feeder is not None:
            feeder.close()

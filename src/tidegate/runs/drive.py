"""One spark-submit with an order, and what came of it: the facts after it, and the error that the driver ended with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, SourceLostError, TidegateError
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts, seal_checkpoint
from tidegate.runs.preflight.pinned import describe_pinned, settings_at_birth
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import sync_unpublished
from tidegate.spark.driver.master import check_master, explain_end
from tidegate.spark.driver.memory import describe_batch, out_of_memory, ran_out
from tidegate.spark.driver.order import IngestOrder, write_order
from tidegate.spark.driver.submit import SubmitPlan, driver_died, plan_submit
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.master import parse_master
from tidegate.state.birth import as_read, name_query, read_birth

_ROOM_FOR_AN_ANSWER_BYTES = 1 << 20


class Load(NamedTuple):
    """How much a driver is to read: by it its settings are chosen."""

    bytes: int
    files: int


def run_driver(context: RunContext, order: IngestOrder, load: Load, submit: Callable[[SubmitPlan], int]) -> None:
    """One spark-submit for ``order``; ``context.facts`` are those afterwards.

    Raises what the driver ended with, and TryAgainError DRIVER_DIED, OUT_OF_MEMORY or DISK_FULL.
    """
    paths, run_id = context.paths, context.report.run_id
    order_path, result_path, log_path = paths.order(run_id), paths.ingest_result(run_id), paths.driver_log(run_id)
    storage.remove(result_path)
    write_order(order_path, order)
    birth = read_birth(paths)
    settings = birth.settings if birth is not None else settings_at_birth(context.project, context.spec)
    plan = plan_submit(
        context.project,
        order_path=order_path,
        log_path=log_path,
        pipeline_conf=context.spec.spark.conf,
        pending_bytes=load.bytes,
        pending_files=load.files,
        settings=settings,
    )
    check_master(plan.master, context.name)
    assert context.facts is not None
    last = context.facts.checkpoint.last_offset
    context.report.notes += describe_pinned(context.project, paths, context.spec, settings, last)
    context.lease.check()
    context.drivers.append(str(log_path))
    exit_code = submit(plan)
    context.lease.check()
    facts = context.facts = gather_facts(paths, context.spec)
    if facts.query_id is not None:
        name_query(paths, facts.query_id)
    sync_unpublished(paths, context.spec, facts, context.lease)
    with contextlib.suppress(DisagreementError):  # the next run says what does not agree
        check_agreement(facts, context.name)
        seal_checkpoint(paths, facts)
    _note_inferred(context)
    result = storage.read_json(result_path)
    error = TidegateError.from_dict(result["error"]) if result is not None and result["error"] is not None else None
    if ran_out(exit_code if result is None else 0, error, on_cluster=parse_master(plan.master).is_cluster):
        batch = facts.in_flight
        in_hand = describe_batch(order, batch, facts.given.get(batch, {}) if batch is not None else {})
        raise out_of_memory(context.name, plan.driver_memory, in_hand, log_path)
    if result is None:
        if storage.free_bytes(paths.state) < _ROOM_FOR_AN_ANSWER_BYTES:
            raise storage.disk_full(result_path)
        raise driver_died(context.name, exit_code, log_path)
    if error is not None:
        raise _with_log(explain_end(error, log_path, plan.master, context.name), str(log_path))
    for path in (order_path, result_path, log_path):
        storage.remove(path)


def _note_inferred(context: RunContext) -> None:
    """Go on with the columns that the driver has inferred, and report them."""
    before, context.spec = context.spec, as_read(context.spec, context.paths)
    for name, source in context.spec.file_sources.items():
        if source.is_kept and is_to_infer(before.sources[name]):
            context.report.sources[name]["schema"] = source.schema
            context.report.notes.append(f"source {name}: its columns were inferred, and are kept: {source.schema}")


def _with_log(error: TidegateError, log_path: str) -> TidegateError:
    if error.code == "INGEST_FAILED" or isinstance(error, SourceLostError):
        error.where = f"{error.where}; log: {log_path}" if error.where else f"log: {log_path}"
    return error

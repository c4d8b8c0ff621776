"""Checks that the sinks accept the table's columns, before anything of a run is staged."""

from __future__ import annotations

from tidegate.spec.faults import Fault, SpecError
from tidegate.spec.models import KafkaSink, PipelineSpec
from tidegate.spec.sink_checks import find_sink_mismatches
from tidegate.table.schema import column_texts


def check_sinks_fit(spec: PipelineSpec, schema_json: str, *, may_grow: bool = False) -> None:
    """Raise SpecError BAD_SINK, with every fault, unless each sink accepts rows of this schema.

    ``may_grow``: a missing column is no fault, because the transform may still add it.
    """
    types = column_texts(schema_json)
    faults = [
        Fault(f"jobs/{spec.name}/pipeline.yaml", None, f"sinks[{index}]", misfit.message, misfit.fix, "BAD_SINK")
        for index, sink in enumerate(spec.sinks)
        if isinstance(sink, KafkaSink)
        for misfit in find_sink_mismatches(sink, types)
        if not (may_grow and misfit.is_missing)
    ]
    if faults:
        raise SpecError(faults, fix=f"correct the transform or the sink, then: tidegate validate {spec.name} --spark")

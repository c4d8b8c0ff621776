"""Checks across the keys of a pipeline: what each key alone cannot tell."""

from __future__ import annotations

from tidegate.spec.findings import Finding
from tidegate.spec.models import PipelineSpec


def check_pipeline(spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with ``spec`` that no single key shows."""
    return []

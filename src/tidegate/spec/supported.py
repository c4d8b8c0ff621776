"""What the syntax of a spec allows and this version does not do yet. This is the one place that says so."""

from __future__ import annotations

from tidegate.spec.findings import Finding
from tidegate.spec.models import PipelineSpec


def list_unsupported(spec: PipelineSpec) -> list[Finding]:
    """Everything in ``spec`` that this version does not do."""
    found: list[Finding] = []

    def refuse(path: tuple[str | int, ...], what: str, fix: str) -> None:
        found.append(Finding(path, f"{what} is not supported yet", fix))

    if spec.quality.on_critical != "hold":
        refuse(("quality", "on_critical"), f"on_critical: {spec.quality.on_critical}", "use hold")
    return found

"""What the contract's syntax allows and this version does not do yet. This is the one place that says so."""

from __future__ import annotations

from tidegate.spec.findings import Finding
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec, RateSource


def list_unsupported(spec: PipelineSpec) -> list[Finding]:
    """Everything in ``spec`` that this version does not do."""
    found: list[Finding] = []

    def refuse(path: tuple[str | int, ...], what: str, fix: str) -> None:
        found.append(Finding(path, f"{what} is not supported yet", fix))

    if len(spec.sources) > 1:
        refuse(("sources",), f"a pipeline with {len(spec.sources)} sources", "keep one, and make a pipeline of each")
    for name, source in spec.sources.items():
        here = ("sources", name)
        if not isinstance(source, (FilesSource, KafkaSource)):
            refuse((*here, "type"), f"a source of type {source.type}", "use files or kafka")
        else:
            if (source.schema_ or "").strip().lower() == "infer":
                refuse((*here, "schema"), "schema: infer", "write the columns: schema: id BIGINT, name STRING")
            if source.static:
                refuse((*here, "static"), "static: true", "remove it")
        if isinstance(source, (FilesSource, KafkaSource, RateSource)) and source.watermark is not None:
            refuse((*here, "watermark"), "a watermark", "remove it")
    if spec.output_mode != "append":
        refuse(("output_mode",), f"output_mode: {spec.output_mode}", "use append")
    if spec.quality.on_critical != "hold":
        refuse(("quality", "on_critical"), f"on_critical: {spec.quality.on_critical}", "use hold")
    return found

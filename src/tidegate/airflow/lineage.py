"""Lineage for Airflow's OpenLineage provider, which asks each operator for it at the end of its task.

Facets and their fields differ between versions of OpenLineage's client: those that it does not have are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.core.outputs import RunReport
from tidegate.runs.reports.report import load_report
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.signals.lineage import Dataset, Lineage, of_audit, of_delivery, of_publish

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

Facets: TypeAlias = dict[str, Any]
"""{key: an object of a class of the client, which this module does not import by name}."""
_FIND: Mapping[str, Callable[[Project, PipelineSpec, RunReport], Lineage]] = {
    "audit": of_audit,
    "publish": of_publish,
    "deliver": of_delivery,
}


def make_lineage(project_root: str, pipeline: str, run_id: str, step: str) -> OperatorLineage:
    """Build the lineage of a step. Raises the errors of reading the project, which the provider logs before it sends
    the event without lineage."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    project = load_project(project_root)
    report = load_report(project.paths(pipeline), run_id)
    if report is None:
        return OperatorLineage()
    found = _FIND[step](project, load_pipeline(project, pipeline), report.to_json())
    return OperatorLineage(
        inputs=[
            InputDataset(one.namespace, one.name, facets=_facets(one), inputFacets=_input_facets(one))
            for one in found.inputs
        ],
        outputs=[
            OutputDataset(one.namespace, one.name, facets=_facets(one), outputFacets=_output_facets(one))
            for one in found.outputs
        ],
    )


def _facets(one: Dataset) -> Facets:
    """The facets that inputs and outputs have in common."""
    found: Facets = {}
    if one.columns:
        fields = [
            _make("schema_dataset", "SchemaDatasetFacetFields", name=name, type=kind)
            for name, kind in one.columns.items()
        ]
        found["schema"] = _make("schema_dataset", "SchemaDatasetFacet", fields=fields)
    if one.storage is not None:
        layer, kind = one.storage
        found["storage"] = _make("storage_dataset", "StorageDatasetFacet", storageLayer=layer, fileFormat=kind)
    if one.version is not None:
        version = str(one.version)
        found["version"] = _make("dataset_version_dataset", "DatasetVersionDatasetFacet", datasetVersion=version)
    if one.change is not None:
        change = _enum("lifecycle_state_change_dataset", "LifecycleStateChange", one.change)
        found["lifecycleStateChange"] = _make(
            "lifecycle_state_change_dataset", "LifecycleStateChangeDatasetFacet", lifecycleStateChange=change
        )
    return _known(found)


def _input_facets(one: Dataset) -> Facets:
    found: Facets = {}
    if one.rows is not None:
        figures: dict[str, int | None] = {"rowCount": one.rows, "fileCount": one.files}
        found["inputStatistics"] = _make(
            "input_statistics_input_dataset", "InputStatisticsInputDatasetFacet", size=one.bytes, **figures
        )
        found["dataQualityMetrics"] = _make(
            "data_quality_metrics_input_dataset",
            "DataQualityMetricsInputDatasetFacet",
            bytes=one.bytes,
            columnMetrics={},
            **figures,
        )
    if one.assertions:
        module = "data_quality_assertions_dataset"
        assertions = [_make(module, "Assertion", **rule) for rule in one.assertions]
        found["dataQualityAssertions"] = _make(module, "DataQualityAssertionsDatasetFacet", assertions=assertions)
    return _known(found)


def _output_facets(one: Dataset) -> Facets:
    if one.rows is None:
        return {}
    figures: dict[str, int | None] = {"rowCount": one.rows, "size": one.bytes, "fileCount": one.files}
    return _known(
        {"outputStatistics": _make("output_statistics_output_dataset", "OutputStatisticsOutputDatasetFacet", **figures)}
    )


def _make(module: str, name: str, /, **values: object) -> Any:
    """An object of the client's class of that name; None when this version has none."""
    import attr

    try:
        kind = getattr(import_module(f"openlineage.client.generated.{module}"), name)
    except (ImportError, AttributeError):
        return None
    known = attr.fields_dict(kind)
    return kind(**{key: value for key, value in values.items() if key in known})


def _enum(module: str, name: str, value: str) -> Any:
    try:
        return getattr(import_module(f"openlineage.client.generated.{module}"), name)(value)
    except (ImportError, AttributeError, ValueError):
        return value


def _known(facets: Facets) -> Facets:
    return {name: facet for name, facet in facets.items() if facet is not None}

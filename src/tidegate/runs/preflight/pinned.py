"""Settings that a checkpoint keeps from its first batch on: what `spark.conf` says of them later has no effect.

Most of them Spark writes into its offset log and takes from there in silence. The number of shuffle partitions it does
not (offset log v2, Spark 4.2): with another number it looks for state that was never written. So the birth record keeps
that one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.paths import PipelinePaths
from tidegate.spark.driver.jvm import PINNED, own_settings
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.checkpoint import read_pinned_settings

_CHOSEN_AT_BIRTH = "spark.sql.shuffle.partitions"


def settings_at_birth(project: Project, spec: PipelineSpec) -> dict[str, str]:
    """The settings that a checkpoint born now keeps: the user's own number of shuffle partitions, or tidegate's."""
    own = own_settings(project, spec.spark.conf)
    return {**PINNED, _CHOSEN_AT_BIRTH: own.get(_CHOSEN_AT_BIRTH, PINNED[_CHOSEN_AT_BIRTH])}


def describe_pinned(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, settings: Mapping[str, str], last_offset: int | None
) -> list[str]:
    """A sentence for each of the user's settings that the checkpoint has with another value.

    ``settings`` are those of its birth; ``last_offset`` is its last planned batch, None before the first one.
    """
    own = own_settings(project, spec.spark.conf)
    by_spark = {} if last_offset is None else read_pinned_settings(paths.checkpoint, last_offset)
    kept = {**by_spark, **settings}
    return [
        f"{key} is {own[key]} in spark.conf, and stays {kept[key]} for this checkpoint: it is read once, with the "
        "first batch"
        for key in sorted(own.keys() & kept.keys())
        if own[key] != kept[key]
    ]

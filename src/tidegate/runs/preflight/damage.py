"""Do table and quarantine hold the files that their logs count? Looked at by names and sizes alone."""

from __future__ import annotations

from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.table.damage import Damage, describe_damage, find_damage

AT_A_GLANCE = 200
"""How many of the newest files of a table a run looks at, and a look at many pipelines: a tick of a table of any size
costs the same."""
OF_ONE = 20_000
"""How many a look at one pipeline takes."""


def check_damage(paths: PipelinePaths, *, at_most: int | None = AT_A_GLANCE) -> None:
    """Raise DisagreementError TABLE_DAMAGED when files or versions of table or quarantine are gone, or have another
    size; ``at_most`` newest files of each are looked at, None: all."""
    for path in (paths.table, paths.quarantine):
        found = find_damage(path, at_most=at_most)
        if found:
            raise damage_error(paths, path == paths.table, found)


def damage_error(paths: PipelinePaths, is_table: bool, found: list[Damage]) -> DisagreementError:
    """The error for what was found in table or quarantine."""
    where = f"pipeline {paths.name}, {paths.table if is_table else paths.quarantine}"
    what = "the table" if is_table else "quarantine"
    return errors.TABLE_DAMAGED(where=where, what=what, found=describe_damage(found), name=paths.name)

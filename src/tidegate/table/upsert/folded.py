"""The remaining rows of an increment, recorded so that the audit checks the same files that the publish moves.

There is one record per increment, in the folder of its manifests. It applies to certain batches, a mode and columns; if
one of these changes, the increment is folded again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.spec.models import MergeMode, PipelineSpec, TableSpec
from tidegate.state.files import check_whole, is_whole
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.schema import merge_schemas
from tidegate.table.upsert.columns import UpsertColumns, find_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Folded:
    """The remaining rows of the batches of one query, by ``keys`` and ``order`` (:class:`UpsertColumns`).
    ``superseded`` has the number of rows by batch."""

    query_id: str
    batches: list[int]
    mode: MergeMode
    keys: dict[str, str]
    token: str
    files: list[StagedFile]
    superseded: dict[str, int]
    order: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> UpsertColumns:
        """The columns by which rows replace others; none in complete mode."""
        return UpsertColumns(self.keys, self.order)

    @property
    def rows(self) -> int:
        """The number of remaining rows."""
        return sum(file.rows for file in self.files)


def fold_unpublished(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], spec: PipelineSpec
) -> list[Folded] | None:
    """The remaining rows of the unpublished batches, one value per query; None in append mode, where all rows remain.

    Raises as :func:`fold_increment`.
    """
    if spec.output_mode == "append":
        return None
    queries = dict.fromkeys(manifest.query_id for manifest in manifests)
    increments = [[manifest for manifest in manifests if manifest.query_id == query] for query in queries]
    return [fold_increment(paths, increment, spec.output_mode, spec.table) for increment in increments]


def fold_increment(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], mode: MergeMode, table: TableSpec
) -> Folded:
    """The remaining rows of the unpublished batches of one query: computed once, and then read from the record.

    Raises UsageError TABLE_KEYS or UPDATE_KEYS_NOT_UNIQUE (nothing is lost: correct the keys and run again),
    DisagreementError STAGED_FILE_DAMAGED before such a file is used.
    """
    from tidegate.table.upsert.merge import fold  # it loads pyarrow, which a run without new rows does not need

    known = load_folded(paths, manifests, mode, table)
    if known is not None:
        return known
    last = manifests[-1]
    columns = _find_columns(manifests, mode, table)
    token = secrets.token_hex(6)
    folder = paths.merge_folder(last.query_id, last.batch_id, token)
    check_whole(paths.state, [file for manifest in manifests for file in manifest.files], last.pipeline)
    batches = {manifest.batch_id: manifest.files for manifest in manifests}
    files, replaced = fold(batches, mode, columns, paths.state, folder)
    superseded = {str(batch): rows for batch, rows in replaced.items()}
    folded = Folded(last.query_id, list(batches), mode, columns.keys, token, files, superseded, columns.order)
    note = paths.folded(last.query_id, last.batch_id)
    if not storage.put_if_absent(note, storage.dump_json(asdict(folded))):
        known = load_folded(paths, manifests, mode, table)
        if known is not None:
            return known
        # The record is of other batches or columns, or its files are missing.
        storage.replace(note, storage.dump_json(asdict(folded)))
    return folded


def load_folded(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], mode: MergeMode, table: TableSpec
) -> Folded | None:
    """The record of exactly these batches, in this mode and by these columns; None when there is none, or when one of
    its copies is damaged, which can be made again."""
    folded = find_folded(paths, manifests)
    if folded is None or folded.mode != mode:
        return None
    columns = _find_columns(manifests, mode, table)
    is_same = folded.keys == columns.keys and list(folded.order.items()) == list(columns.order.items())
    return folded if is_same else None


def find_folded(paths: PipelinePaths, manifests: Sequence[BatchManifest]) -> Folded | None:
    """The record of exactly these batches, in any mode and by any columns; None when there is none, or its files are
    missing or damaged."""
    last = manifests[-1]
    value = storage.read_json(paths.folded(last.query_id, last.batch_id))
    folded = None if value is None else Folded(**{**value, "files": [StagedFile(**file) for file in value["files"]]})
    if folded is None or folded.batches != [manifest.batch_id for manifest in manifests]:
        return None
    there = all(storage.exists(paths.state / file.path) for file in folded.files)
    copies = [file for file in folded.files if is_copy(file.path)]
    return folded if there and all(is_whole(paths.state / file.path, file) for file in copies) else None


def is_copy(path: str) -> bool:
    """Return whether a staged file is a copy made from other files, which can be made again."""
    return path.split("/")[3].startswith("merge-")


def list_merge_folders(paths: PipelinePaths) -> Iterator[str]:
    """The folders of copies that a record names, relative to the state folder."""
    for query in storage.list_folders(paths.manifests):
        for path in storage.list_folder(query, "folded-*.json"):
            value = storage.read_json(path)
            for file in value["files"] if value is not None else ():
                yield "/".join(file["path"].split("/")[:4])


def remove_folded(paths: PipelinePaths, query_id: str, up_to: int) -> None:
    """Remove the records of increments that are in the table's log, also one that a killed process wrote in part."""
    for path in storage.list_folder(paths.manifests / query_id, "*folded-*"):
        if int(path.name.lstrip(".").removeprefix("folded-").partition(".")[0]) <= up_to:
            storage.remove(path)


def drop_older(
    paths: PipelinePaths, folded: Folded, batches: Sequence[BatchManifest], older: pa.ChunkedArray
) -> Folded:
    """``folded`` without the rows for which ``older`` (a boolean per row) is true: the table has newer ones.

    They count as superseded. It is not recorded: with other rows in the table it is computed again.
    """
    from tidegate.table.upsert.merge import count_by_batch, drop_rows

    remaining = {one.batch_id: one.staged - folded.superseded.get(str(one.batch_id), 0) for one in batches}
    counts = count_by_batch(older, remaining)
    if not counts:
        return folded
    token = secrets.token_hex(6)
    folder = paths.merge_folder(folded.query_id, folded.batches[-1], token)
    superseded = {str(one): rows + folded.superseded.get(str(one), 0) for one, rows in counts.items()}
    return replace(
        folded,
        token=token,
        files=drop_rows(folded.files, older, paths.state, folder),
        superseded={**folded.superseded, **superseded},
    )


def _find_columns(manifests: Sequence[BatchManifest], mode: MergeMode, table: TableSpec) -> UpsertColumns:
    if mode == "complete":
        return UpsertColumns()
    return find_columns(table, merge_schemas([manifest.schema_json for manifest in manifests], manifests[-1].pipeline))

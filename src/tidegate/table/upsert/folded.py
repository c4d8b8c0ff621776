"""The remaining rows of an increment, recorded so that the audit checks the same files that the publish moves.

There is one record per increment, in the folder of its manifests. It applies to certain batches, a mode and keys; if
one of these changes, the increment is folded again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.spec.faults import name_nearest
from tidegate.spec.models import MergeMode, PipelineSpec
from tidegate.state.files import check_whole, is_whole
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table import errors
from tidegate.table.schema import merge_schemas, normalise_schema, type_text

_KEY_TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date", "timestamp", "binary")


@dataclass(frozen=True)
class Folded:
    """The remaining rows of the batches of one query, by ``keys``. ``superseded`` has the number of rows by batch."""

    query_id: str
    batches: list[int]
    mode: MergeMode
    keys: dict[str, str]
    token: str
    files: list[StagedFile]
    superseded: dict[str, int]

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
    return [fold_increment(paths, increment, spec.output_mode, spec.table.keys) for increment in increments]


def fold_increment(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], mode: MergeMode, keys: Sequence[str]
) -> Folded:
    """The remaining rows of the unpublished batches of one query: computed once, and then read from the record.

    Raises UsageError TABLE_KEYS or UPDATE_KEYS_NOT_UNIQUE (nothing is lost: correct the keys and run again),
    DisagreementError STAGED_FILE_DAMAGED before such a file is used.
    """
    from tidegate.table.upsert.merge import fold  # it loads pyarrow, which a run without new rows does not need

    known = load_folded(paths, manifests, mode, keys)
    if known is not None:
        return known
    last = manifests[-1]
    types = _key_types(manifests, mode, keys)
    token = secrets.token_hex(6)
    folder = paths.merge_folder(last.query_id, last.batch_id, token)
    check_whole(paths.state, [file for manifest in manifests for file in manifest.files], last.pipeline)
    batches = {manifest.batch_id: manifest.files for manifest in manifests}
    files, replaced = fold(batches, mode, types, paths.state, folder)
    superseded = {str(batch): rows for batch, rows in replaced.items()}
    folded = Folded(last.query_id, list(batches), mode, types, token, files, superseded)
    note = paths.folded(last.query_id, last.batch_id)
    if not storage.put_if_absent(note, storage.dump_json(asdict(folded))):
        known = load_folded(paths, manifests, mode, keys)
        if known is not None:
            return known
        # The record is of other batches or keys, or its files are missing.
        storage.replace(note, storage.dump_json(asdict(folded)))
    return folded


def load_folded(
    paths: PipelinePaths, manifests: Sequence[BatchManifest], mode: MergeMode, keys: Sequence[str]
) -> Folded | None:
    """The record of exactly these batches, in this mode and with these keys; None when there is none, or when one of
    its copies is damaged, which can be made again."""
    folded = find_folded(paths, manifests)
    if folded is None or (folded.mode, folded.keys) != (mode, _key_types(manifests, mode, keys)):
        return None
    return folded


def find_folded(paths: PipelinePaths, manifests: Sequence[BatchManifest]) -> Folded | None:
    """The record of exactly these batches, in any mode and with any keys; None when there is none, or its files are
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


def _key_types(manifests: Sequence[BatchManifest], mode: MergeMode, keys: Sequence[str]) -> dict[str, str]:
    if mode == "complete":
        return {}
    return check_keys(keys, merge_schemas([manifest.schema_json for manifest in manifests]))


def check_keys(keys: Sequence[str], schema_json: str) -> dict[str, str]:
    """The key columns, spelled as in the rows, with their types.

    Raises UsageError TABLE_KEYS when the rows do not have one, or its values cannot be compared reliably: floats have
    NaN and two zeros, and engines disagree on lists and structs.
    """
    types = {field["name"]: field["type"] for field in json.loads(normalise_schema(schema_json))["fields"]}
    spelt = {name.lower(): name for name in types}
    found: dict[str, str] = {}
    faults = []
    for key in keys:
        name = spelt.get(key.lower())
        if name is None:
            nearest = name_nearest(key, types)
            faults.append(f"the rows have no column {key!r}" + (f" (is it {nearest!r}?)" if nearest else ""))
        elif not (types[name] in _KEY_TYPES or str(types[name]).startswith("decimal")):
            faults.append(
                f"column {name!r} is {type_text(types[name])}, and values of this type cannot be compared reliably"
            )
        else:
            found[name] = types[name]
    if not keys:
        faults.append("there are none")
    if faults:
        raise errors.TABLE_KEYS(where="pipeline.yaml, table.keys", faults="; ".join(faults), columns=", ".join(types))
    return found

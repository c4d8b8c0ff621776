"""A pipeline to maintain, without Spark: its project on disk, batches staged by hand, the command itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.keyed import Keyed
from tidegate.core import outputs
from tidegate.rework.maintain.command import maintain_pipeline, preview_maintenance
from tidegate.spec.project import Project, load_project
from tidegate.table.log.files import LOG_FOLDER
from tidegate.table.log.state import DataFile, list_data_files


@dataclass
class Kept(Keyed):
    """A pipeline ``orders`` in append mode whose project is on disk; ``maintenance`` and ``table`` go into its spec."""

    mode: str = "append"
    keys: list[str] = field(default_factory=list)
    maintenance: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """``maintenance:`` of tidegate.yaml."""

    @property
    def project(self) -> Project:
        """The project as it is written now."""
        folders = {name: name for name in ("warehouse", "state", "quarantine")}
        self._write("tidegate.yaml", {"version": 1, **folders, "maintenance": self.settings})
        source = {"type": "kafka", "topics": ["orders"], "format": "json", "schema": self.ddl}
        spec = {"version": 1, "name": "orders", "output_mode": self.mode, "sources": {"orders": source}}
        table = {"partition_by": self.partition_by, "keys": self.keys, "readers": self.readers, **self.table}
        self._write("jobs/orders/pipeline.yaml", {**spec, "table": table, "sinks": self.sinks, **self._maintenance()})
        return load_project(self.root)

    @property
    def ddl(self) -> str:
        """The columns, as a spec has them."""
        kinds = {"long": "BIGINT", "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}
        return ", ".join(f"{name} {kinds.get(kind, kind.upper())}" for name, kind in self.columns.items())

    def _maintenance(self) -> dict[str, Any]:
        return {"maintenance": self.maintenance} if self.maintenance else {}

    def _write(self, path: str, value: dict[str, Any]) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(yaml.safe_dump(value, sort_keys=False))

    def publish(self, rows: list[dict[str, Any]], files: int = 1) -> None:
        """One run that takes these rows into the table, in ``files`` files for each partition."""
        self.stage(rows, files=files)
        assert self.run().outcome == "published"

    def maintain(self, run_id: str = "M1") -> outputs.RunReport:
        """The command."""
        return maintain_pipeline(self.project, "orders", run_id)

    def foresee(self) -> dict[tuple[str, str], outputs.MaintenanceItem]:
        """The dry run, by work and by what it is on."""
        return {(item["work"], item["of"]): item for item in preview_maintenance(self.project, "orders")["items"]}

    @property
    def files(self) -> list[DataFile]:
        """The table's files."""
        return list_data_files(self.paths.table)

    def on_disk(self) -> list[str]:
        """Every file of rows in the table's folder, hidden ones too."""
        return sorted(path.name for path in self.paths.table.rglob("*") if ".parquet" in path.name)

    def age(self, days: float) -> None:
        """Make all commits of the table so much older."""
        for path in (self.paths.table / LOG_FOLDER).glob("*.json"):
            actions = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
            for action in actions:
                for name, key in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
                    if name in action:
                        action[name][key] -= int(days * 86_400_000)
            path.write_text("\n".join(json.dumps(action) for action in actions))


def list_everything(root: Path, *, but: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    """{path: (size, time of change)} of every file under a folder, without those below folders of these names."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not set(but) & set(path.relative_to(root).parts):
            found[str(path.relative_to(root))] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found

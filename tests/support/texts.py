"""Files of a project from their texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.spec.project import Project, load_project


def write_project(root: Path, texts: Mapping[str, str]) -> Project:
    """Write files by their paths in the project; ``tidegate.yaml`` is the shortest one unless it is among them."""
    for path, text in {"tidegate.yaml": "version: 1\n", **texts}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return load_project(root)

"""Secrets written out in ``tidegate.yaml`` or ``pipeline.yaml``, which everybody reads who sees the repository.

``validate`` names them. Runs do not refuse them: a pipeline in use must not stop because its files are looked at more
closely than before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tidegate.spec.document import Document, KeyPath, names_variable
from tidegate.spec.faults import Fault
from tidegate.spec.yaml_file import read_document

LITERAL_SECRET = "LITERAL_SECRET"

# At the end of the key: what holds a secret, not what speaks of one (credentials.provider, redaction.regex).
_SECRET_KEY = re.compile(
    r"^(?!spark\.kubernetes\.\w+\.secret).*"  # there the last part names one of Kubernetes' own
    r"(?:passw(?:or)?d|secret|token|jaas\.config|keystore\.key|(?:secret|access|private|api|account)[._-]?key)"
    r"(?:\.[\w.-]+\.windows\.net)?$",
    re.IGNORECASE,
)


def find_in_project(root: Path) -> list[Fault]:
    """The secrets written in ``tidegate.yaml`` itself; one that a ``${VAR}`` brings is as it should be."""
    document = read_document(root / "tidegate.yaml", "tidegate.yaml")
    places = [*_list_scalars(document, ("spark", "conf")), *_list_scalars(document, ("kafka", "options"))]
    for path, value in places:
        if not names_variable(value):
            variable = re.sub(r"\W+", "_", str(path[-1])).upper()
            document.add_fault(
                path,
                "a secret is written out here, for all who may read the file",
                f'write "${{{variable}}}" and set that variable where the program runs',
                LITERAL_SECRET,
            )
    return document.faults


def find_in_pipeline(path: Path, file: str) -> list[Fault]:
    """The secrets under ``spark.conf`` of a ``pipeline.yaml``, where the environment is not filled in."""
    try:
        document = read_document(path, file)
    except OSError:
        return []  # reported by the check of the spec itself
    document.faults.clear()
    for key_path, _ in _list_scalars(document, ("spark", "conf")):
        document.add_fault(
            key_path,
            "a secret does not belong in pipeline.yaml",
            f'write it in tidegate.yaml: spark: {{conf: {{{key_path[-1]}: "${{VAR}}"}}}}',
            LITERAL_SECRET,
        )
    return document.faults


def _list_scalars(document: Document, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The entries of the mapping at ``path`` that hold a secret by their name; a truth value is none."""
    holder: object = document.data
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    for key, value in holder.items() if isinstance(holder, dict) else ():
        is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
        if is_scalar and str(value) and _SECRET_KEY.match(str(key)):
            yield (*path, key), str(value)

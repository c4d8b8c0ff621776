"""What a check across keys found: a key path and words. The line is added where the file is at hand."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.spec.document import Document, KeyPath, name_path
from tidegate.spec.faults import Fault


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a model, at ``path`` in it."""

    path: KeyPath
    message: str
    fix: str
    code: str | None = None
    """The code of the fault, where it is not the one of the whole check."""

    def to_fault(self, document: Document, code: str) -> Fault:
        """The finding with its place."""
        file, line = document.find_place(self.path)
        message, fix = document.hide_filled(self.message), document.hide_filled(self.fix)
        return Fault(file, line, name_path(self.path), message, fix, self.code or code)

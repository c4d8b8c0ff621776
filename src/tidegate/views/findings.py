"""A finding of ``tidegate doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core import outputs
from tidegate.core.errors import TidegateError


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``fix`` is the command or action that corrects it, None where nothing is wrong."""

    check: str
    ok: bool
    found: str
    fix: str | None = None

    @staticmethod
    def of(check: str, error: TidegateError) -> Finding:
        """The finding for an error."""
        return Finding(check, False, f"{error.code}: {error.message}", error.fix)

    def to_dict(self) -> outputs.Finding:
        """The finding as ``--json`` prints it."""
        return {"check": self.check, "ok": self.ok, "found": self.found, "fix": self.fix}

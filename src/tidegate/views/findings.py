"""What ``tidegate doctor`` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core import outputs
from tidegate.core.errors import TidegateError


@dataclass(frozen=True)
class Finding:
    """One thing looked at; ``fix`` is the command or the act that puts it right, None where it is right."""

    check: str
    ok: bool
    found: str
    fix: str | None = None

    @staticmethod
    def of(check: str, error: TidegateError) -> Finding:
        """What an error says."""
        return Finding(check, False, f"{error.code}: {error.message}", error.fix)

    def to_dict(self) -> outputs.Finding:
        """The finding as ``--json`` carries it."""
        return {"check": self.check, "ok": self.ok, "found": self.found, "fix": self.fix}

"""What a data maker offered, so that a test or the demo can compare exactly what came out at the other end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

MALFORMED = "malformed"
REJECTED = "rejected"
REPORTED = "reported"


@dataclass(frozen=True)
class Fault:
    """One way in which a record can be wrong.

    ``effect`` is what the pipeline must do with it: ``malformed`` (quarantined before the transform), ``rejected``
    (quarantined by the rule ``rule``) or ``reported`` (a good row with the unknown field ``rule``). ``change`` puts the
    fault into a good record.
    """

    name: str
    effect: str
    rule: str | None = None
    change: Callable[[dict[str, Any], Random], object] | None = None


@dataclass
class Truth:
    """Counts of what was offered. Every faulty record has exactly one fault, so the counts add up."""

    offered: int = 0
    by_fault: dict[str, int] = field(default_factory=dict)
    malformed: int = 0
    rejected_by_rule: dict[str, int] = field(default_factory=dict)
    unknown_fields: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    bytes: int = 0

    @property
    def rejected(self) -> int:
        """Records that parse but break a quarantine rule."""
        return sum(self.rejected_by_rule.values())

    @property
    def quarantined(self) -> int:
        """Records that must end in the quarantine table."""
        return self.malformed + self.rejected

    @property
    def published(self) -> int:
        """Records that must end in the table."""
        return self.offered - self.quarantined

    def count_fault(self, fault: Fault) -> None:
        """Take one faulty record into the counts (not into ``offered``)."""
        self.by_fault[fault.name] = self.by_fault.get(fault.name, 0) + 1
        if fault.effect == MALFORMED:
            self.malformed += 1
        elif fault.rule is not None:
            counts = self.rejected_by_rule if fault.effect == REJECTED else self.unknown_fields
            counts[fault.rule] = counts.get(fault.rule, 0) + 1

    def to_dict(self) -> dict[str, object]:
        """The truth as printed, with the derived totals."""
        return {
            **asdict(self),
            "rejected": self.rejected,
            "quarantined": self.quarantined,
            "published": self.published,
        }

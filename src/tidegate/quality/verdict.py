"""The gate: from the results of the rules to one verdict on the increment. Pure.

- a failed critical rule fails the increment, a failed warning warns, info is only reported;
- a quarantine rule that still finds offending rows among the staged ones has drifted from the stream, which quarantined
  what it called offending: that fails the increment whatever the rule's severity;
- more quarantined than ``quality.max_quarantine_share`` allows is another failed critical;
- without that limit, more than half of many records malformed or rejected is one too: a wrong schema or rule, not a bad
  record. Fewer are a warning. So is an increment of files that cannot be read, when it is unknown how many records they
  hold;
- each file that is in quarantine whole counts with its rows where a footer has their number, and is always a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from tidegate.core.outputs import Quality, RowKey, Rows, VerdictName
from tidegate.core.words import count_of, list_first
from tidegate.quality import errors
from tidegate.quality.engine import RuleResult
from tidegate.quality.suite import SuiteSpec
from tidegate.spec.models import QualitySpec
from tidegate.state.manifest import WholeFile

SHARE_RULE = "max_quarantine_share"
TIDEGATE_TYPE = "tidegate"
_MANY = 100
"""Records, and rows where the transform makes fewer, from which on more than half malformed or rejected is held."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one increment. ``suite`` is the name of the suite, None when there is none."""

    verdict: VerdictName
    suite: str | None
    results: tuple[RuleResult, ...] = ()
    failed_critical: Mapping[str, str] = field(default_factory=dict)
    """Why the increment may not pass: {rule: what it found, in words without any row's value}."""
    warnings: tuple[str, ...] = ()
    """Findings besides the results that a person should look at; they hold nothing."""

    @property
    def quality(self) -> Quality:
        """As the run report has it."""
        return {
            "suite": self.suite,
            "verdict": self.verdict,
            "results": [result.to_dict() for result in self.results],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class WholeFiles:
    """Files of an increment that are in quarantine whole, each counted as one malformed record: how many, their bytes,
    their ``rows`` by the footers that can be read, and how many files have no readable one (``uncounted``)."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    uncounted: int = 0
    more: int = 0
    """Rows that the count of malformed records does not have: each file is one of it."""

    @staticmethod
    def of(files: Iterable[WholeFile]) -> WholeFiles:
        """From the ``whole_files`` of manifests."""
        every = list(files)
        rows = [file["rows"] for file in every if file["rows"] is not None]
        more = sum(max(count - 1, 0) for count in rows)
        return WholeFiles(len(every), sum(file["size"] for file in every), sum(rows), len(every) - len(rows), more)

    def describe(self) -> str:
        """``2 files are in quarantine whole (3,400 bytes, 1,200 rows by their footers)``."""
        details = [count_of(self.bytes, "byte")]
        if self.uncounted < self.files:
            details.append(f"{count_of(self.rows, 'row')} by their footers")
        if self.uncounted:
            details.append(
                "rows unknown" if self.uncounted == self.files else f"{self.uncounted:,} of them with unknown rows"
            )
        return (
            f"{self.files:,} {'file is' if self.files == 1 else 'files are'} in quarantine whole ({', '.join(details)})"
        )


NO_FILES = WholeFiles()


@dataclass(frozen=True)
class Quarantined:
    """The losses of an increment: malformed and late records, of those ``read``, and rejected rows, of those
    ``transformed`` from the remaining records."""

    read: int
    malformed: int = 0
    late: int = 0
    transformed: int = 0
    rejected: int = 0
    whole: WholeFiles = NO_FILES
    """Files in quarantine whole, each counted as one malformed record."""

    @staticmethod
    def of(rows: Rows | Mapping[RowKey, int], whole: WholeFiles = NO_FILES) -> Quarantined:
        """From the ``rows`` of a run report."""
        return Quarantined(rows["read"], rows["malformed"], rows["late"], rows["transformed"], rows["rejected"], whole)

    @property
    def by_rows(self) -> Quarantined:
        """The same, with all rows of whole files counted, as far as footers have their number."""
        return replace(self, read=self.read + self.whole.more, malformed=self.malformed + self.whole.more)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing could be read, and the number of records is unknown."""
        return self.whole.uncounted > 0 and self.read == self.malformed == self.whole.files

    @property
    def count(self) -> int:
        """Records and rows that were quarantined."""
        return self.malformed + self.late + self.rejected

    @property
    def share(self) -> Fraction:
        """The part of the records that was quarantined, 0 to 1, exactly.

        A rejected row counts for as many records as one row was made of: an aggregation makes one row of many records,
        an explode many rows of one. Where each record is one row, this is ``count`` over ``read``.
        """
        dropped = Fraction(self.malformed + self.late, self.read) if self.read else Fraction(0)
        rejected = Fraction(self.rejected, self.transformed) if self.transformed else Fraction(0)
        return dropped + (1 - dropped) * rejected

    def describe(self) -> str:
        """``2 of 6 records quarantined (33.3%)``, with the rows apart where they are not the records."""
        dropped = self.malformed + self.late
        if not self.rejected or dropped + self.transformed == self.read:
            return f"{self.count:,} of {self.read:,} records {self._what()} ({float(self.share):.1%})"
        rows = f"{self.rejected:,} of {self.transformed:,} rows quarantined"
        return f"{f'{dropped:,} of {self.read:,} records and ' if dropped else ''}{rows} ({float(self.share):.1%})"

    def _what(self) -> str:
        kinds = {"malformed": self.malformed, "late": self.late, "rejected": self.rejected}
        there = [kind for kind, count in kinds.items() if count]
        return there[0] if len(there) == 1 else "quarantined"

    @property
    def is_mostly_wrong(self) -> bool:
        """Whether more than half of many records are malformed or rejected; late ones were right in their time."""
        of_many = min(self.read, self.malformed + self.late + self.transformed) >= _MANY
        return of_many and replace(self, late=0).share > Fraction(1, 2)


def decide_verdict(
    suite: SuiteSpec | None,
    results: Sequence[RuleResult],
    quarantined: Quarantined,
    quality: QualitySpec,
    most_frequent: str = "",
    by_day: Mapping[str, Quarantined] | None = None,
) -> Verdict:
    """The verdict on an increment.

    Args:
        suite: Its expectations; None where there are none.
        results: The answers of Great Expectations, one per rule of ``suite``, on the staged rows.
        quarantined: Its losses.
        quality: The limits of the pipeline.
        most_frequent: Why most records were quarantined.
        by_day: The losses of each day of a backfill, which are judged one by one instead of all ``quarantined``.

    Raises:
        DefectError: A rule has no result, or a result no rule.
    """
    rules = suite.rules if suite else ()
    if [result.rule for result in results] != [rule.rule for rule in rules]:
        raise errors.GX_LEFT_OUT_RESULTS(fault=f"gave {len(results)} results for the {len(rules)} rules of the suite")
    failed: dict[str, str] = {}
    for rule, result in zip(rules, results, strict=True):
        if rule.quarantine and result.unexpected_count:
            failed[result.rule] = (
                f"drift: {result.unexpected_count} staged rows break it, although the stream quarantines such rows"
            )
        elif not result.success and result.severity == "critical":
            failed[result.rule] = _describe(result)
    because = f": {most_frequent}" if most_frequent else ""
    share, excess = _judge_shares(by_day or {"": quarantined}, quality)
    every = (*results, *([share] if share else []))
    warnings = []
    if excess:
        failed[SHARE_RULE] = excess + because
    elif quality.max_quarantine_share is None and quarantined.malformed + quarantined.rejected:
        warnings.append(f"{quarantined.by_rows.describe()}{because}")
    if whole := quarantined.whole.describe() if quarantined.whole.files else "":
        others = "" if quarantined.count == quarantined.whole.files else "; causes of all quarantined records"
        warnings.append(f"{whole}{others}{because}" if because and not warnings else whole)
    if failed:
        verdict: VerdictName = "failed"
    elif suite is None:
        verdict = "unchecked"
    elif any(not result.success and result.severity == "warning" for result in results):
        verdict = "warned"
    else:
        verdict = "passed"
    return Verdict(verdict, suite.name if suite else None, every, failed, tuple(warnings))


def judge_share(quarantined: Quarantined, quality: QualitySpec) -> RuleResult | None:
    """The pseudo rule on the share of records quarantined; None without a limit in the spec, unless most are wrong, or
    nothing could be read and the number of records is unknown."""
    counted = quarantined.by_rows
    limit, share = quality.max_quarantine_share, float(counted.share)
    if limit is None:
        if not counted.is_mostly_wrong and not quarantined.is_unknown:
            return None
        limit = 0.5
        share = float(replace(counted, late=0).share)
    return RuleResult(SHARE_RULE, TIDEGATE_TYPE, "critical", share <= limit, counted.count, round(share, 6))


def _judge_shares(parts: Mapping[str, Quarantined], quality: QualitySpec) -> tuple[RuleResult | None, str]:
    """The result on the part with the largest share, and why it is too large ("" where it is not), with the names of
    all parts whose share is."""
    judged = [(one, share) for one in parts.values() if (share := judge_share(one, quality)) is not None]
    if not judged:
        return None, ""
    worst, share = max(judged, key=lambda pair: (not pair[1].success, pair[0].by_rows.share))
    if share.success:
        return share, ""
    limit = quality.max_quarantine_share
    allowed = f"allowed: {limit:.1%}" if limit is not None else "more than half"
    if limit is None and worst.is_unknown:
        allowed = f"nothing of the increment could be read, and its size is unknown: {worst.whole.describe()}"
    too_many = (label for label, one in parts.items() if (found := judge_share(one, quality)) and not found.success)
    labels = list_first([label for label in too_many if label])
    return share, f"{worst.by_rows.describe()}, {allowed}{f' ({labels})' if labels else ''}"


def _describe(result: RuleResult) -> str:
    if result.unexpected_count is not None:
        return f"{count_of(result.unexpected_count, 'row breaks', 'rows break')} it"
    if isinstance(result.observed_value, (int, float, str)):
        return f"observed {result.observed_value}"
    return "it does not hold for the increment"

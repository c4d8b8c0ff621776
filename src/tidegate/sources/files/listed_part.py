"""Which part of a store a scan looks at, where not all keys are listed in each run, and what the ledger notes of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from tidegate.sources.files.ledger import Ledger, Listed
from tidegate.sources.files.notifications import News, ReadMessages, read_news
from tidegate.spec.models import FilesSource

_NAMED_AFTER_SECONDS = 600.0
"""How old an object is that a notification has certainly named, if one ever will."""


@dataclass(frozen=True)
class ListedPart:
    """All keys, those ``after`` a URI, or those ``named``.

    ``how`` says which are read, and is "" where all keys are listed in each run; ``noted`` is how far the store was
    listed before, in the same way; ``news`` are of notifications.
    """

    how: str = ""
    noted: Listed | None = None
    after: str = ""
    named: frozenset[str] | None = None
    news: News | None = None

    @property
    def is_all(self) -> bool:
        """Return whether these are all keys."""
        return not self.after and self.named is None

    def has_missed(self, path: str, age_seconds: float) -> bool:
        """Return whether only a list of all keys has found a new object: others would have come to it before."""
        if self.news is None:
            return self.noted is not None and path <= self.noted.mark
        named = self.news.named
        return self.is_all and named is not None and path not in named and age_seconds > _NAMED_AFTER_SECONDS

    def find_listed(self, known: Collection[str], pending: Collection[str], now: float) -> Listed | None:
        """How far the store was listed by a look at this part; None where that is noted already.

        The mark passes only objects that are in the ledger, and none that is ``pending``, to be read now or later: the
        ledger knows those after it that were taken. A position among notifications has the pending ones with it.
        """
        if not self.how:
            return None
        all_at = now if self.is_all or self.noted is None else self.noted.all_at
        if self.news is not None:
            listed = self.news.note(pending, all_at, self.how)
        else:
            first = min(pending, default=None)
            mark = max((path for path in known if first is None or path < first), default=self.after)
            listed = Listed(mark, all_at, self.how)
        return None if listed == self.noted else listed


def choose_part(
    source_name: str, spec: FilesSource, ledger: Ledger, now: float, read_messages: ReadMessages | None
) -> ListedPart:
    """Choose what to look at; without ``read_messages`` a source with notifications is listed, and nothing noted."""
    if spec.list_all_every is None or (spec.notifications is not None and read_messages is None):
        return ListedPart()
    how, noted = _how_listed(spec), ledger.listed(source_name)
    if noted is not None and noted.how != how:
        noted = None
    is_due = noted is None or not 0 <= now - noted.all_at < spec.list_all_every  # a clock may be set back
    if spec.notifications is not None and read_messages is not None:
        news = read_news(source_name, spec, read_messages, noted, ledger)
        return ListedPart(how, noted, named=None if is_due else news.named, news=news)
    is_one_object = noted is not None and noted.mark == spec.path.rstrip("/")
    return ListedPart(how, noted, "" if noted is None or is_due or is_one_object else noted.mark)


def _how_listed(spec: FilesSource) -> str:
    """What decides which of the objects that a store has are read, and how new ones are found."""
    found_by = [] if spec.notifications is None else [spec.notifications.place]
    return json.dumps([spec.path, spec.options.get("pathGlobFilter"), spec.is_recursive, *found_by])

"""Whether a file that Spark read is the file that it was before Spark looked at it.

Spark takes a file's length when it lists it, some time before the batch's function is called, and reads so much of it.
So the state of each file is noted before the query is started; what differs after the batch was read is read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidegate.core import storage


class InputState(NamedTuple):
    """A file behind a link: ``changed_ns`` is its ctime, which a writer cannot set."""

    size: int
    mtime_ns: int
    changed_ns: int


@dataclass
class InputStates:
    """The states of the files behind links, as they were when :meth:`note` was called last."""

    states: dict[Path, InputState] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _in_doubt: bool = False

    def note(self, links: Iterable[Path]) -> None:
        """Take the states of ``links``; to be called before Spark can have looked at them. A file that is not there has
        none."""
        self.states, self._digests = {}, {}
        for link in links:
            try:
                self.states[link] = _state_of(link)
                if self._in_doubt:
                    self._digests[link] = storage.digest(link)
            except FileNotFoundError:
                continue

    def changed(self, links: Iterable[Path]) -> list[Path]:
        """The ``links`` whose files have changed. Raises FileNotFoundError for one that is gone.

        A file of the same size and time may have been overwritten and its time restored (see ctime), or may only have
        been renamed, linked or given other rights. The first time it counts as changed; from then on digests are noted
        too, and decide.
        """
        found = []
        for link in links:
            before, now = self.states.get(link), _state_of(link)
            if before is None or before[:2] != now[:2]:
                found.append(link)
            elif before != now and (link not in self._digests or self._digests[link] != storage.digest(link)):
                self._in_doubt = True
                found.append(link)
        return found


def _state_of(link: Path) -> InputState:
    stat = os.stat(link)
    return InputState(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)

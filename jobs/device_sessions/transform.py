"""Events of devices -> sessions: from the first event to the last one before 30 minutes of silence.

Shows arbitrary state: Spark keeps a text per device between runs and calls ``follow_device`` when events of it come, or
when the watermark has passed the end of a silence.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

GAP_MS = 30 * 60 * 1000

Session = list[int]
"""First and last event as epoch milliseconds, and how many events."""


def transform(events: DataFrame) -> DataFrame:
    """One row per session that is over."""
    sessions = (
        # As numbers, so that no time zone has a say between Spark and pandas. event_time stays for its watermark.
        events.select("device", "event_time", F.unix_millis("event_time").alias("at"))
        .groupBy("device")
        .applyInPandasWithState(
            follow_device,
            outputStructType="device STRING, session_start BIGINT, session_end BIGINT, events BIGINT",
            stateStructType="open_sessions STRING",  # JSON: Spark 4.2 cannot read a state with an array in it
            outputMode="append",
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
        )
    )
    return sessions.select(
        "device",
        F.timestamp_millis("session_start").alias("session_start"),
        F.timestamp_millis("session_end").alias("session_end"),
        "events",
    )


def follow_device(key: tuple[Any], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add what came to the device's open sessions, and give those that are over.

    Events come in any order within the watermark, so several sessions of a device can be open, and one event can make
    one of two.
    """
    sessions: list[Session] = json.loads(state.get[0]) if state.exists else []
    for frame in frames:
        sessions += [[at, at, 1] for at in frame["at"].tolist()]
    sessions = join_sessions(sessions)
    watermark = state.getCurrentWatermarkMs()
    over = [session for session in sessions if session[1] + GAP_MS < watermark]
    still_open = sessions[len(over) :]
    if still_open:
        state.update((json.dumps(still_open),))
        state.setTimeoutTimestamp(still_open[0][1] + GAP_MS)
    else:
        state.remove()
    if over:
        starts, ends, counts = zip(*over, strict=True)
        yield pd.DataFrame({"device": key[0], "session_start": starts, "session_end": ends, "events": counts})


def join_sessions(sessions: list[Session]) -> list[Session]:
    """The sessions in their order, those less than a gap apart made one."""
    joined: list[Session] = []
    for start, end, events in sorted(sessions):
        if joined and start - joined[-1][1] < GAP_MS:
            joined[-1][1] = max(joined[-1][1], end)
            joined[-1][2] += events
        else:
            joined.append([start, end, events])
    return joined

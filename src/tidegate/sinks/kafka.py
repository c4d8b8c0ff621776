"""The Kafka sink: each row a record, each version a transaction, without a JVM.

A consumer that reads committed records sees either a whole version or nothing of it. The transaction's note identifies
the delivery, so a crash between the commit and our own note repeats nothing: the next feeder skips what the broker has.
A version is sent again when both notes are lost (the state folder was restored; the broker deletes the offsets of a
group that was inactive for a week). Its records then have the same headers run_id, table_version and row as before.

In a version that replaces rows, each record has a header ``replaces``: its partition of the table, or the keys. A
partition that becomes empty has no record, so a tombstone has the header.

With ``value: columns`` a row may name its topic. Then all topics and partitions of a version are looked up before its
first record is sent, and its transaction spans them.

A version that cannot be sent in ``_PIECE_SECONDS`` is sent in several transactions, in order, each of which continues
where the last one ended: brokers limit how long a transaction may take.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import list_first
from tidegate.sinks.feed import SinkFault
from tidegate.sinks.kafka_producer import KafkaFaults, TransactionalProducer, name_topics
from tidegate.sinks.kafka_records import ColumnRecords, JsonRecords, Record, Targets, to_plain
from tidegate.sinks.rows import find_replaces, read_file
from tidegate.sources.kafka.brokers import Brokers
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec
from tidegate.table.log.state import DataFile
from tidegate.table.publish.delivery import Delivery, Partition
from tidegate.table.publish.replace import plain_name

_TRANSACTION_SECONDS = 900.0
"""The default limit of brokers, and the longest that consumers wait for a process that died."""
_PIECE_SECONDS = 600.0


class KafkaFeeder:
    """Feeds the topic of a sink, or the topics that its rows name.

    ``explain_topic`` returns why a topic that a row names cannot be fed, and what to do instead, or None. Raises
    SinkFault on construction when the sink's topic is missing, the columns do not fit, the brokers are unavailable, or
    they do not allow it.
    """

    def __init__(
        self,
        sink: KafkaSink,
        paths: PipelinePaths,
        schema_json: str,
        kafka: ProjectKafkaSpec,
        explain_topic: Callable[[str], tuple[str, str] | None] = lambda topic: None,
    ) -> None:
        self._table = paths.table
        self._schema_json = schema_json
        self._topic = sink.topic
        self._skip_hint = f"to skip all versions that are pending for the sink: remove {paths.sink(sink.name)}"
        self._records = (
            JsonRecords(sink, schema_json)
            if sink.value == "json"
            else ColumnRecords(sink, schema_json, explain_topic, self._skip_hint)
        )
        topics = () if sink.topic is None else (sink.topic,)
        # A pipeline's name has no dot, so no topic can make the name of a sink without one.
        prefix = ".".join(("tidegate", paths.name, *topics))
        try:
            self._settings = settings_of(kafka)
            self._found = Brokers(self._settings).describe(topics) if topics else {}
        except TidegateError as error:
            raise _as_fault(error, topics, kafka.bootstrap_servers) from error
        self._faults = KafkaFaults(
            topics, f"{prefix}.{_project_id(paths)}", self._settings, _TRANSACTION_SECONDS, prefix
        )
        self._refuse_missing(topics)
        self._producer = TransactionalProducer(self._faults)
        self._notes: dict[str, str | None] = {}

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Send the rows of a version that its topics do not have yet, and wait until consumers can see them."""
        targets = self._records.find_targets(self._table, delivery)
        if not targets.topics:  # there are no rows to name a topic
            return
        home = next(iter(targets.topics))  # the topic of the note: the version alone determines it
        done = self._find_done(delivery, home)
        if done is None:
            return
        self._faults.topics = tuple(targets.topics)
        self._check(targets)
        headers = {"run_id": delivery.run_id, "table_version": str(delivery.number)}
        number = 0
        self._producer.begin()
        for text in self._list_emptied(delivery) if done == 0 else ():
            self._producer.send(Record(home, None, text), {**headers, "replaces": text})
        for file in delivery.files:
            check_lease()
            replaced = self._replaced_by(delivery, file)
            of_file = headers if replaced is None else {**headers, "replaces": replaced}
            for batch in read_file(self._table, file, self._records.schema_json):
                for row in to_plain(batch):
                    if number >= done:
                        self._producer.send(self._records.make(row), {**of_file, "row": str(number)})
                    number += 1
                self._producer.check()
                if number > done and self._producer.seconds > _PIECE_SECONDS:
                    check_lease()
                    self._commit(delivery, home, number, whole=False)
                    self._producer.begin()
        check_lease()
        self._commit(delivery, home, number, whole=True)

    def close(self) -> None:
        """Abort what was not committed."""
        self._producer.close()

    def _replaced_by(self, delivery: Delivery, file: DataFile) -> str | None:
        """What the rows of a file replace, as JSON; None for nothing."""
        if delivery.keys:
            return json.dumps({"keys": list(delivery.keys)})
        mine = {name: value or None for name, value in file.partition.items()}
        found = next((one for one in delivery.partitions if one in ({}, mine)), None)
        return None if found is None else self._partition_text(found)

    def _list_emptied(self, delivery: Delivery) -> list[str]:
        """The partitions that become empty; none where rows name their topics, since no row names one for them."""
        if self._topic is None or delivery.keys:
            return []
        filled = {self._replaced_by(delivery, file) for file in delivery.files}
        return [text for one in delivery.partitions if (text := self._partition_text(one)) not in filled]

    def _partition_text(self, partition: Partition) -> str:
        (typed,) = find_replaces(Delivery(0, "", (), (partition,)), self._schema_json).partitions
        return json.dumps({"partition": typed}, ensure_ascii=False, default=str)

    def _find_done(self, delivery: Delivery, home: str) -> int | None:
        """How many rows of the version its topics have; None for all of them."""
        if home not in self._notes:  # this process never needs the notes that it commits afterwards
            self._notes[home] = self._producer.read_note(home)
        text = self._notes[home]
        note = {} if text is None else json.loads(text)
        if note.get("delivery") != _mark(delivery):
            return 0
        return None if note["whole"] else int(note["rows"])

    def _commit(self, delivery: Delivery, home: str, rows: int, *, whole: bool) -> None:
        note = {"delivery": _mark(delivery), "version": delivery.version, "rows": rows, "whole": whole}
        self._producer.commit(home, json.dumps(note), delivery.number)

    def _check(self, targets: Targets) -> None:
        """Raise SinkFault when a topic or a partition of the version does not exist."""
        unknown = {
            topic
            for topic in targets.topics
            if topic not in self._found
            or (topic in targets.partitions and targets.partitions[topic][0] not in self._found[topic].partitions)
        }
        if unknown:
            try:
                self._found |= Brokers(self._settings).describe(unknown)
            except TidegateError as error:
                raise _as_fault(error, self._faults.topics, self._settings.address) from error
        self._refuse_missing(targets.topics, targets)
        for topic, (partition, place) in targets.partitions.items():
            existing = self._found[topic].partitions
            if partition not in existing:
                self._refuse(
                    f"{place} names partition {partition}; topic {topic!r} has the partitions 0 to {existing[-1]}",
                    f"kafka-topics.sh --bootstrap-server {self._settings.address} --alter --topic {topic} "
                    f"--partitions {partition + 1}; or have the transform name another partition, or NULL",
                )

    def _refuse_missing(self, topics: Iterable[str], targets: Targets | None = None) -> None:
        missing = [topic for topic in topics if topic not in self._found]
        create = f"kafka-topics.sh --bootstrap-server {self._settings.address} --create --topic"
        fix = "; ".join(f"{create} {topic}" for topic in missing[:5])
        if missing and targets is None:
            raise self._faults.fault(f"there is no topic {missing[0]!r}", fix)
        if missing and targets is not None:
            named = [f"{topic!r}, named by {targets.topics[topic]}" for topic in missing]
            self._refuse(f"there is no topic {list_first(named)}", fix)
        for topic in topics:
            if self._found[topic].internal:
                raise self._faults.fault(f"the topic {topic!r} is the brokers' own", "feed another topic")

    def _refuse(self, message: str, fix: str) -> None:
        raise self._faults.fault(f"{message}; nothing of the version was sent", f"{fix}; {self._skip_hint}")


def _project_id(paths: PipelinePaths) -> str:
    """A random id that distinguishes this project from others on the same brokers, such as another environment of it.

    It is made once, and kept in the folder that has the state of all pipelines."""
    value = storage.read_json(paths.project_id)
    if value is None:
        storage.put_if_absent(paths.project_id, storage.dump_json({"id": secrets.token_hex(4)}))
        value = storage.read_json(paths.project_id)
    with storage.unreadable_is_named(paths.project_id):
        return str((value or {})["id"])


def _as_fault(error: TidegateError, topics: Iterable[str], address: str) -> SinkFault:
    where = f"{name_topics(topics)}kafka brokers {address}"
    return SinkFault(f"{error.code}: {error.message}", where=where, fix=error.fix or "look at the brokers")


def _mark(delivery: Delivery) -> str:
    """Identify a delivery: a table that was restored may have other rows under the same version number."""
    # By the original names of the files: one that was replaced since has a hidden name.
    names = [plain_name(file.path) or file.path for file in delivery.files]
    parts = [delivery.version, delivery.run_id, names]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

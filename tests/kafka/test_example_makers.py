"""What the makers say they sent is what lies in the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.examples import make_ad_clicks, make_clicks, make_word_count
from tidegate.examples.command import Draw

if TYPE_CHECKING:
    from tests.support.topics import Topics


def read_values(topics: Topics, topic: str, count: int) -> list[bytes | None]:
    """The first ``count`` values of a topic, sorted; one more must not be there."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": topics.address,
            "group.id": "example-makers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, timeout=30)
        assert consumer.poll(0.2) is None
    finally:
        consumer.close()
    return sorted((message.value() for message in messages), key=repr)


def test_each_record_is_in_its_topic_once(topics: Topics) -> None:
    lines = topics.name("lines")
    outcome = make_word_count.make_word_count(topics.address, 2, 300, topic=lines, faults=0.1)
    sent = [value for value, _ in make_word_count.iter_lines(2, 300, faults=0.1)]
    assert outcome.offered == len(sent) and None in sent
    assert read_values(topics, lines, 300) == sorted(sent, key=repr)

    pair = topics.name("impressions"), topics.name("ad_clicks")
    outcome = make_ad_clicks.make_ad_clicks(topics.address, 3, 100, topics=pair)
    delivery = make_ad_clicks.make_deliveries(3, 100)[-1]
    assert outcome.offered == len(delivery.impressions) + len(delivery.clicks)
    for topic, records in zip(pair, (delivery.impressions, delivery.clicks), strict=True):
        expected = sorted((text.encode() for text, _ in records), key=repr)
        assert read_values(topics, topic, len(records)) == expected


def test_clicks_are_counted_as_they_are_sent(topics: Topics) -> None:
    topic = topics.name("clicks")
    truth = make_clicks.make_clicks(topics.address, 200, Draw(faults=0.3), topic=topic)
    assert truth.offered == 200 and truth.quarantined > 20
    assert sorted(truth.by_fault) == sorted(
        {fault.name for _, _, fault in make_clicks.iter_clicks(200, Draw(faults=0.3)) if fault}
    )
    expected = sorted((value.encode() for _, value, _ in make_clicks.iter_clicks(200, Draw(faults=0.3))), key=repr)
    assert read_values(topics, topic, 200) == expected
    assert truth.bytes == sum(len(k) + len(v) for k, v, _ in make_clicks.iter_clicks(200, Draw(faults=0.3)))

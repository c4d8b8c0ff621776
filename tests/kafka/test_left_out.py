"""Sources that the spec leaves out for several batches go on where they were: Spark looks back over two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.streaming import make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics


def test_a_topic_and_files_come_back(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create()
    kafka = f"  tt: {{type: kafka, topics: [{topic}], format: json, schema: word STRING, starting_offsets: earliest}}\n"
    listed = {"one": source("one", "word STRING"), "two": source("two", "word STRING"), "tt": kafka}
    flow = make_streaming(tmp_path, spark, "sources:\n" + listed["one"])
    settings = tmp_path / "tidegate.yaml"
    settings.write_text(settings.read_text() + f"kafka: {{bootstrap_servers: '{topics.address}'}}\n")

    def read(*names: str) -> None:
        text = "".join(listed[name] for name in names)
        head = "version: 1\nname: flow\nschedule: null\ntransform: transform.py\n"
        flow.write("jobs/flow/pipeline.yaml", f"{head}sources:\n{text}")
        union = ".unionByName(".join(names) + ")" * (len(names) - 1)
        flow.write("jobs/flow/transform.py", f"def transform({', '.join(names)}):\n    return {union}\n")

    wanted = []

    def offer(name: str, word: str) -> None:
        wanted.append((word,))
        if name == "tt":
            topics.send(topic, [f'{{"word": "{word}"}}'])
        else:
            flow.offer(name, {"word": word})

    read("one", "two", "tt")
    for name in listed:
        offer(name, f"{name} 0")
    flow.run()
    offer("tt", "tt 1")
    flow.run()
    read("one")
    for number in range(3):
        offer("one", f"one {number + 1}")
        flow.run()
    read("one", "two", "tt")
    for name in listed:
        offer(name, f"{name} 9")
    flow.run()
    offer("tt", "tt 10")
    flow.run()
    flow.expect("word", wanted)

"""Records that the Python client cannot write: with the library underneath it, which every language's client but Java's
has too."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER = 0
_TOPIC, _VALUE, _MESSAGE_FLAGS, _HEADERS, _END = 1, 4, 7, 10, 0
_COPY = 2


def send_with_header(address: str, topic: str, value: bytes, name: bytes) -> None:
    """Send one record with a header of this name, of whatever bytes."""
    [path] = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*")
    library, size = ctypes.CDLL(str(path)), ctypes.c_size_t
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", address.encode(), error, size(len(error)))
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, error, size(len(error))))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(size(1)))
    length = ctypes.c_ssize_t
    assert library.rd_kafka_header_add(headers, name, length(len(name)), b"v", length(1)) == 0
    what = (_TOPIC, ctypes.c_char_p(topic.encode()), _MESSAGE_FLAGS, _COPY, _VALUE, ctypes.c_char_p(value))
    assert library.rd_kafka_producev(producer, *what, size(len(value)), _HEADERS, headers, _END) == 0
    assert library.rd_kafka_flush(producer, 10_000) == 0
    library.rd_kafka_destroy(producer)

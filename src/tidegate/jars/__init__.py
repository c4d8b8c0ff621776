"""``kafka.lock``: the jars of Spark's Kafka source, by the version of Spark that they are for, each with its checksum.

Written by ``make lock`` beside ``tools/jars.lock``, read by ``tidegate.driver.connector``.
"""

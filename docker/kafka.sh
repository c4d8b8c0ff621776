#!/bin/sh
# A Kafka broker that is its own controller; its storage is formatted when it starts for the first time.
set -eu
data=/var/lib/kafka/data
options="-Xms256m -Xmx512m -XX:+UseSerialGC -Djava.awt.headless=true -Dlog4j2.configurationFile=/opt/docker/kafka-log4j2.properties"

if [ ! -f "$data/meta.properties" ]; then
    # The first letter is fixed: an id that begins with - would be taken for an option.
    cluster=$(python -c 'import base64, uuid; print("T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22])')
    # shellcheck disable=SC2086
    java $options -cp "/opt/kafka/*" kafka.tools.StorageTool format --ignore-formatted \
        --cluster-id "$cluster" --config /opt/docker/kafka.properties
fi
# shellcheck disable=SC2086
exec java $options -cp "/opt/kafka/*" kafka.Kafka /opt/docker/kafka.properties

#!/bin/sh
# In the place of the entrypoint of Postgres' image: a database for POSTGRES_USER at the first start, then the server.
set -eu
data=/var/lib/postgresql/data
if [ ! -f "$data/PG_VERSION" ]; then
    umask 077
    printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --no-locale --no-sync
    rm /tmp/password
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$data" postgres
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
fi
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp

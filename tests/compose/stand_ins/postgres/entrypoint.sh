#!/bin/sh
# As root: give the data folder to the server's user, and go on as that user. Then a database at the first start.
set -eu
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" && chmod 700 "$PGDATA" && chown -R postgres "$PGDATA" && chown postgres /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
    initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --no-locale
    rm /tmp/password
    [ "$POSTGRES_DB" = postgres ] || echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$PGDATA" postgres
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
fi
exec "$@" -c listen_addresses='*'

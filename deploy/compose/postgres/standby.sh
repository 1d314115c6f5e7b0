#!/bin/sh
# Starts a standby. With an empty data folder it first copies the primary.
set -eu
SECRETS="${SECRETS:-/run/secrets}"

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    PGPASSWORD="$(cat "$SECRETS/replication_password")"
    export PGPASSWORD
    until pg_basebackup --pgdata "$PGDATA" --wal-method stream --checkpoint fast --write-recovery-conf \
        --dbname "host=$PRIMARY_HOST port=${PRIMARY_PORT:-5432} user=replicator application_name=$STANDBY_NAME"; do
        echo "the primary $PRIMARY_HOST does not answer yet" >&2
        sleep 2
    done
    chmod 700 "$PGDATA"
fi

exec postgres "$@"

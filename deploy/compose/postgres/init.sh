#!/bin/sh
# Runs once, on the empty database of db1: roles, database, and the synchronous quorum.
# The image calls it before the standbys exist. So the quorum is stored and takes effect with the next start:
# a commit in this script would wait for a standby for ever.
set -eu
SECRETS="${SECRETS:-/run/secrets}"

export SECRETS

psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --dbname postgres <<'SQL'
\set turnlog_password `cat "$SECRETS/db_password"`
\set replication_password `cat "$SECRETS/replication_password"`
create role turnlog login password :'turnlog_password';
create role replicator login replication password :'replication_password';
-- For `turnlog cluster-check`: it looks whether the standbys are connected.
grant pg_read_all_stats to turnlog;
create database turnlog owner turnlog encoding 'UTF8' template template0;
-- Each server has the names of all three, so that the quorum also holds after a failover.
alter system set synchronous_standby_names = 'ANY 1 (db1, db2, db3)';
-- A standby that was away for a while catches up without a new copy.
alter system set wal_keep_size = '1GB';
SQL

# Passwords only, and the database of Turnlog for its role alone.
cat > "$PGDATA/pg_hba.conf" <<'HBA'
local   all          postgres                 peer
host    turnlog      turnlog      all         scram-sha-256
host    replication  replicator   all         scram-sha-256
HBA

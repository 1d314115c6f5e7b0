#!/bin/sh
# Makes the secrets of compose.yaml in the folder secrets/, and prints the token of the first person, once.
# Run it as root, so that each file belongs to the user that reads it. What exists is left alone.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

TURNLOG_USER=10001  # of the Dockerfile
POSTGRES_USER=999   # of the image postgres

random() { openssl rand -hex 32; }
make() { [ -s "$1" ] || printf '%s\n' "$2" > "$1"; }

make turnlog_key "$(random)"
make admin_password "$(random)"
make db_password "$(random)"
make replication_password "$(random)"
make pgpass "*:*:turnlog:turnlog:$(cat db_password)"

if [ ! -s turnlog_tokens ]; then
    token="$(random)"
    hash="$(printf %s "$token" | openssl dgst -sha256 -r | cut -d' ' -f1)"
    printf '{"ada": {"sha256": "%s", "roles": ["operator"]}}\n' "$hash" > turnlog_tokens
    echo "The token of ada, an operator. Copy it now: it is not stored."
    echo "  $token"
fi

# A certificate that signs itself, to try it out. Replace both files by those of a certificate authority.
if [ ! -s tls_certificate ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=log.example.org \
        -addext subjectAltName=DNS:log.example.org -keyout tls_key -out tls_certificate 2> /dev/null
fi

if [ "$(id -u)" = 0 ]; then
    chown "$TURNLOG_USER" turnlog_key turnlog_tokens pgpass
    chown "$POSTGRES_USER" admin_password db_password replication_password
else
    echo "Not root: let user $TURNLOG_USER read turnlog_key, turnlog_tokens and pgpass," >&2
    echo "and user $POSTGRES_USER the three passwords, before you start the containers." >&2
fi
chmod 400 turnlog_key turnlog_tokens pgpass admin_password db_password replication_password tls_key

"""The nginx of `docs/deploy.md`, set up on this machine with ports and a certificate of our own."""

import datetime
import re
import socket
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AROUND = """pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
daemon off;
worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{servers}
}}
"""
NAME = "log.example.org"


def configure(folder: Path, servers: str, plain: int = 0, tls: int = 0) -> Path:
    """A file for nginx with the servers of a document; where they listen and what they show is ours."""
    certificate(folder)
    for port, own in ((80, plain or free_port()), (443, tls or free_port())):
        servers = re.sub(rf"listen (\[::\]:)?{port}\b", f"listen 127.0.0.1:{own}", servers)
    servers = re.sub(r"(ssl_certificate) \S+;", rf"\1 {folder}/cert.pem;", servers)
    servers = re.sub(r"(ssl_certificate_key) \S+;", rf"\1 {folder}/key.pem;", servers)
    file = folder / "nginx.conf"
    file.write_text(AROUND.format(folder=folder, servers=servers))
    return file


def check_command(nginx: str, file: Path) -> list[str]:
    """What looks at a configuration and starts nothing."""
    return [nginx, "-t", "-q", "-p", str(file.parent), "-c", str(file)]


def run_command(nginx: str, file: Path) -> list[str]:
    """What runs it, in the foreground."""
    return [nginx, "-p", str(file.parent), "-c", str(file)]


def free_port() -> int:
    """A port that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certificate(folder: Path) -> Path:
    """A certificate that vouches for itself, for the name of the documents and for loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    return folder / "cert.pem"

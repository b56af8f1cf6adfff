"""Which store a spooled frame is meant for, without saying where that is or how to enter it.

Reads a connection string without importing psycopg: the agent needs the answer at its first event.
"""

import hashlib
import json
import re
from urllib.parse import parse_qsl, unquote

LOCAL = "local"
DOMAIN = b"amfs-otel/v1/destination\0"
_PAIR = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)*))", re.DOTALL)


def destination_of(dsn: str | None, log: str) -> str:
    """Return ``local``, or 64 hex digits of SHA-256 over host, port, database and log.

    User, password and options do not count: the same store under another password is the same destination. A string
    that cannot be read as a connection string still gives a stable destination of its own.

    Args:
        dsn: A connection string, URI or ``key=value``; ``None`` or empty is the local store.
        log: Name of the log.
    """
    if not dsn:
        return LOCAL
    place = place_of(dsn)
    members = [*place, log] if place else [hashlib.sha256(dsn.encode()).hexdigest(), log]
    return hashlib.sha256(DOMAIN + json.dumps(members).encode()).hexdigest()


def place_of(dsn: str) -> tuple[str, str, str] | None:
    """Return host, port and database of a connection string, with libpq's defaults; ``None`` where it is ambiguous.

    Ambiguous is a URI with ``@``, ``/``, ``?`` or ``#`` unescaped in its password: any part shown of it could be
    secret.
    """
    found = _place_in_uri(dsn) if "://" in dsn else _place_in_pairs(dsn)
    if found is None:
        return None
    host = found.get("hostaddr") or found.get("host") or "localhost"
    port = found.get("port") or "5432"
    database = found.get("dbname") or found.get("user") or ""
    if not re.fullmatch(r"[0-9,]*", port):
        return None
    return host.lower() if not host.startswith("/") else host, port, database


def _place_in_uri(dsn: str) -> dict[str, str] | None:
    scheme, rest = dsn.split("://", 1)
    authority, separator, tail = _cut(rest, "/?#")
    if scheme not in ("postgresql", "postgres") or authority.count("@") > 1 or "@" in separator + tail or "#" in rest:
        return None
    user, _, hosts = authority.rpartition("@")
    path, _, query = (tail if separator == "/" else separator + tail).partition("?")
    pairs = [_host_and_port(host) for host in hosts.split(",")]
    found = {
        "user": unquote(user.partition(":")[0]),
        "host": ",".join(unquote(host) for host, _ in pairs),
        "port": ",".join(port for _, port in pairs).strip(","),
        "dbname": unquote(path),
    }
    return found | {name: value for name, value in parse_qsl(query) if name in ("host", "hostaddr", "port", "dbname")}


def _cut(text: str, marks: str) -> tuple[str, str, str]:
    """Split at the first of several one-character marks."""
    for index, character in enumerate(text):
        if character in marks:
            return text[:index], character, text[index + 1 :]
    return text, "", ""


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        address, _, rest = text[1:].partition("]")
        return address, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port


def _place_in_pairs(dsn: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    end = 0
    text = dsn.rstrip()
    while end < len(text):
        match = _PAIR.match(text, end)
        if match is None:
            return None
        value = match[2] if match[2] is not None else match[3]
        found[match[1]] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        end = match.end()
    return found or None

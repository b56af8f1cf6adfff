"""Where records go that a store refused: kept byte for byte, with the reason beside them, out of the drain's way."""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from amfs_otel.spool.durable import replace_private_file
from amfs_otel.spool.failures import spool_error_from_os_error
from amfs_otel.spool.state_directory import StateDirectory

_SUFFIX = ".frame"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One refused record.

    Attributes:
        path: ``<record id>.<reason>.frame``, the payload as it was spooled.
        facts: The JSON beside it: record, reason, detail, destination, quarantined_at, bytes, sha256; empty when that
            file is missing or unreadable.
    """

    path: Path
    facts: Mapping[str, object]


def quarantine(
    state: StateDirectory,
    payload: bytes,
    reason: str,
    *,
    record_id: bytes | None = None,
    destination: str | None = None,
    detail: str = "",
) -> Path:
    """Keep a record that cannot be stored; the same record for the same reason makes one file, however often.

    Args:
        state: The state directory.
        payload: The frame's payload.
        reason: A short code, for instance ``store_conflict``; other characters than letters, digits, ``-`` and ``_``
            become ``-``.
        record_id: 16 bytes, the frame's id; None when even that is unknown: the payload's SHA-256 names the file then.
        destination: Where it was going.
        detail: What the store said; never content.

    Returns:
        The file's path; on the medium when this returns, so that the spool's frame may go.

    Raises:
        SpoolError: It could not be kept: leave the frame where it is.
    """
    code = re.sub(r"[^A-Za-z0-9_-]+", "-", reason)[:60] or "unknown"
    digest = hashlib.sha256(payload).hexdigest()
    name = digest[:32] if record_id is None else record_id.hex()
    path = state.quarantine / f"{name}.{code}{_SUFFIX}"
    facts = {
        "record": None if record_id is None else record_id.hex(),
        "reason": reason,
        "detail": detail,
        "destination": destination,
        "quarantined_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "bytes": len(payload),
        "sha256": digest,
    }
    state.open()
    try:
        if path.exists() and path.read_bytes() != payload:
            path = path.with_name(f"{name}.{code}-{digest[:16]}{_SUFFIX}")
        if not path.exists():
            replace_private_file(_sidecar(path), json.dumps(facts, indent=2).encode() + b"\n", durable=True)
            replace_private_file(path, payload, durable=True)
    except OSError as error:
        raise spool_error_from_os_error(error, "a refused record could not be kept", path) from error
    return path


def quarantined(state: StateDirectory) -> list[Quarantined]:
    """All refused records, by record id; empty without a quarantine directory."""
    return [Quarantined(path, _facts(path)) for path in sorted(state.quarantine.glob(f"*{_SUFFIX}"))]


def _facts(path: Path) -> Mapping[str, object]:
    try:
        facts = json.loads(_sidecar(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("Mapping[str, object]", facts) if isinstance(facts, dict) else {}


def _sidecar(path: Path) -> Path:
    return path.with_suffix(".json")

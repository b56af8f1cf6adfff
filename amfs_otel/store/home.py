"""Where the local store's cluster lies, and whether one was ever made.

Agents ask it too, also as they end, when a thread pool can no longer be imported: so this imports next to nothing.
"""

import hashlib
import os
from pathlib import Path

ROOT_HOME = Path("/var/lib/amfs-otel")
"""Of the homes of root's servers, which run under another account."""


def name_of(state_dir: Path) -> str:
    """Sixteen hex digits that stand for a state directory."""
    return hashlib.sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:16]


def home_of(state_dir: Path) -> Path:
    """The home of the server of a state directory, for the user who asks."""
    return ROOT_HOME / name_of(state_dir) if os.geteuid() == 0 else state_dir / "postgres"


def cluster_version(data: Path) -> int | None:
    """The major version that made a data directory; ``None`` where there is none."""
    try:
        return int((data / "PG_VERSION").read_text().strip())
    except (OSError, ValueError):
        return None

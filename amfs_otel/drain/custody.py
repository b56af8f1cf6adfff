"""Which keys this process holds.

A key comes from its variable or its file variable. Else a server's is `keys/<role>.key` in the state directory, which
`init` makes or somebody copies there, and is never invented; the local store's is the development key
`keys/development-<role>.key`, whatever is there for servers, made by whichever process is first. A local database that
has lost its keys gets no new ones: its log would not know them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amfs_otel import environment_variables as env
from amfs_otel.chain.keys import Key, KeyRing, generate_key_text, key_from_file, key_from_text
from amfs_otel.errors import KeyUnavailable
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory, ensure_key_file
from amfs_otel.store.home import cluster_version, home_of

Role = Literal["writer", "log"]


class KeysLost(KeyUnavailable):
    """The local database is there, and a key file that its logs began with is not."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key and where it came from.

    Attributes:
        key: The key; its secret never appears in a repr.
        source: A variable's name or a file's path.
        development: Whether it is a development key, good for the local store only.
    """

    key: Key
    source: str
    development: bool = False


def held_key(settings: Settings, state: StateDirectory, role: Role, *, make: bool = True) -> HeldKey | None:
    """The key of `role` that this process may use, `None` where it holds none.

    Args:
        settings: Where to look.
        state: The state directory.
        role: `writer` signs records, `log` seals them.
        make: Whether a development key may be made where no DSN is set.

    Raises:
        ConfigurationError: What the configuration names is no usable key.
        KeyUnavailable: A file that the configuration names cannot be read.
        KeysLost: A development key would have to be made for a local database that began with another.
        SpoolError: The state directory cannot take a development key.
    """
    value, file = (
        (settings.signing_key, settings.signing_key_file)
        if role == "writer"
        else (settings.log_key, settings.log_key_file)
    )
    if file is not None:
        name = env.AMFS_OTEL_SIGNING_KEY_FILE if role == "writer" else env.AMFS_OTEL_LOG_KEY_FILE
        return HeldKey(key_from_file(file, named_by=name), str(file))
    if value is not None:
        name = env.AMFS_OTEL_SIGNING_KEY if role == "writer" else env.AMFS_OTEL_LOG_KEY
        return HeldKey(key_from_text(value, where=name), name)
    if settings.dsn is not None:
        path = state.keys / f"{role}.key"
        return HeldKey(key_from_file(path), str(path)) if _is_there(path) else None
    path = state.keys / f"development-{role}.key"
    if not _is_there(path):
        if not make:
            return None
        _refuse_a_second_key(settings, path)
        state.open()
        ensure_key_file(path, generate_key_text())
    return HeldKey(key_from_file(path), str(path), development=True)


def _refuse_a_second_key(settings: Settings, path: Path) -> None:
    home = home_of(settings.state_dir)
    if cluster_version(home / "data") is not None:
        raise KeysLost(
            "the local database is there, and the key file that its logs began with is not",
            where=str(path),
            got=f"database in {home}",
            hint=f"Restore the key files of {path.parent}, or delete the database and begin anew with: "
            "amfs-otel reset --local.",
        )


def key_ring(settings: Settings, state: StateDirectory) -> KeyRing:
    """Every key within reach, for verification: those in force and all `*.key` files of the state directory.

    Raises:
        ConfigurationError: What the configuration names is no usable key.
        KeyUnavailable: A file that the configuration names cannot be read.
    """
    held = [held_key(settings, state, "writer", make=False), held_key(settings, state, "log", make=False)]
    found = [one.key for one in held if one is not None]
    files = sorted(state.keys.glob("*.key")) if state.keys.is_dir() else []
    found.extend(key_from_file(path) for path in files if path.name != "spool.key")
    return KeyRing(found)


def _is_there(path: Path) -> bool:
    """Whether `path` exists; not reachable is an error, not an absence."""
    try:
        return path.exists()
    except OSError as error:
        raise KeyUnavailable(
            "the key directory cannot be looked into",
            where=str(path.parent),
            got=error.strerror,
            hint="Check its owner and mode.",
        ) from None

"""`init` and `keygen`: preparing a server for a log, and the keys of those who write and seal."""

import time
from dataclasses import dataclass
from pathlib import Path

from amfs_otel.chain.genesis import key_fact, key_record
from amfs_otel.chain.keys import Key, generate_key_text, key_from_text
from amfs_otel.drain.custody import HeldKey, Role, held_key
from amfs_otel.drain.known_keys import require_known
from amfs_otel.drain.open_store import open_local, require_log
from amfs_otel.drain.sealing import seal_all
from amfs_otel.errors import ConfigurationError, KeyUnavailable, StoreError
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory, ensure_key_file
from amfs_otel.store.announced import AnnouncedKey
from amfs_otel.store.connect import translated
from amfs_otel.store.destination import place_of
from amfs_otel.store.postgres import Store
from amfs_otel.store.schema import prepare, refuse_headless

ROLES: tuple[Role, ...] = ("writer", "log")


@dataclass(frozen=True, slots=True)
class PreparedLog:
    """A log that agents may write to.

    Attributes:
        log: Its name.
        log_uid: Its identity.
        created: Whether this call began it.
        version: Of the schema.
        place: Host, port and database, without user and password.
        held: The keys that this user holds, by role.
        made: Key files that were made.
        announced: What the log says about keys.
        notes: What could not be done, or that a person should know.
    """

    log: str
    log_uid: str
    created: bool
    version: int
    place: str
    held: dict[Role, HeldKey]
    made: tuple[Path, ...]
    announced: tuple[AnnouncedKey, ...]
    notes: tuple[str, ...]


def prepare_log(settings: Settings) -> PreparedLog:
    """Prepares schema, roles and log on the server of the DSN; on a new log with new key files where none are held.

    Doing it again changes nothing.

    Args:
        settings: With a DSN.

    Raises:
        ConfigurationError: The DSN or the server does not fit; see `schema.prepare`.
        StoreUnavailable: The server cannot be reached.
        StoreError: It refused.
        SpoolError: The state directory cannot take a key file.
    """
    assert settings.dsn is not None
    state = StateDirectory(settings.state_dir)
    with Store.connect(settings.dsn, settings.log) as store:
        present = store.schema_state().present
        is_new = not present or store.log_uid() is None
        if present and is_new:
            with translated("looking for the log"):
                refuse_headless(store.connection, settings.log)
    held, made = _keys(settings, state, make=is_new)
    done = prepare(
        settings.dsn,
        log=settings.log,
        writer_key=_key_of(held, "writer"),
        log_key=_key_of(held, "log"),
        now_ns=time.time_ns(),
    )
    with Store.connect(settings.dsn, settings.log) as store:
        announced = tuple(store.announced_keys())
    place = place_of(settings.dsn)
    return PreparedLog(
        settings.log,
        done.log_uid,
        done.created,
        done.version,
        f"{place[0]}:{place[1]}/{place[2]}" if place else "the server",
        held,
        made,
        announced,
        tuple(done.notes),
    )


def _key_of(held: dict[Role, HeldKey], role: Role) -> Key | None:
    return held[role].key if role in held else None


def _keys(settings: Settings, state: StateDirectory, *, make: bool) -> tuple[dict[Role, HeldKey], tuple[Path, ...]]:
    held: dict[Role, HeldKey] = {}
    made: list[Path] = []
    for role in ROLES:
        found = held_key(settings, state, role, make=False)
        if found is None and make:
            path = state.keys / f"{role}.key"
            state.open()
            ensure_key_file(path, generate_key_text())
            made.append(path)
            found = held_key(settings, state, role, make=False)
        if found is not None:
            held[role] = found
    return held, tuple(made)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made.

    Attributes:
        text: What goes into its file.
        kid: Its id.
        sequence_number: Where the log announces it; `None` where it is not announced or not sealed yet.
    """

    text: str
    kid: str
    sequence_number: int | None = None


def new_key() -> NewKey:
    """Makes a key; nothing is stored anywhere."""
    text = generate_key_text()
    return NewKey(text, key_from_text(text).kid)


def announce(settings: Settings, new: NewKey, *, role: str, name: str, by: str) -> NewKey:
    """Says in the log that a key may sign, under the writer key that is held here.

    Args:
        settings: Names store and log.
        new: The key.
        role: `writer` or `log`.
        name: The workload that it belongs to, printable ASCII.
        by: Who ordered it.

    Raises:
        KeyUnavailable: No writer key is held here.
        ConfigurationError: The log does not know the writer key that is held here.
        StoreError: The record was refused.
    """
    if settings.dsn is None:
        with open_local(settings) as opened:
            if opened is None:
                raise ConfigurationError("there is no log yet that could announce a key", where="the local store")
            return _announced(opened.store, settings, new, role=role, name=name, by=by)
    with Store.connect(settings.dsn, settings.log) as store:
        require_log(store)
        return _announced(store, settings, new, role=role, name=name, by=by)


def _announced(store: Store, settings: Settings, new: NewKey, *, role: str, name: str, by: str) -> NewKey:
    state = StateDirectory(settings.state_dir)
    writer = held_key(settings, state, "writer", make=False)
    if writer is None:
        raise KeyUnavailable(
            "announcing a key needs a writer key that the log knows", where=str(state.keys / "writer.key")
        )
    require_known(store, settings, writer, "writer")
    fact = key_fact(op="add", role=role, kid=new.kid, name=name, by=by)
    record = key_record(log=store.log, writer_key=writer.key, now_ns=time.time_ns(), fact=fact)
    answer = store.append([record])[0]
    if answer.outcome == "refused":
        raise StoreError("the announcement was not stored", got=answer.reason)
    log_key = held_key(settings, state, "log", make=False)
    if log_key is not None:
        seal_all(store, log_key.key)
    return NewKey(new.text, new.kid, store.places([record.record_id]).get(record.record_id))


def role_from(text: str) -> Role:
    """A role that a key can be made for.

    Raises:
        ConfigurationError: It is none.
    """
    if text not in ROLES:
        raise ConfigurationError("is no role", where="--role", expected=" or ".join(ROLES), got=repr(text[:20]))
    return text

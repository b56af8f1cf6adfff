"""Whether the log knows a key that is held here, asked before anything is signed or sealed with it."""

from amfs_otel.drain.custody import HeldKey, Role
from amfs_otel.errors import ConfigurationError, StoreError, StoreUnavailable
from amfs_otel.settings import Settings
from amfs_otel.store.announced import announcing_step
from amfs_otel.store.postgres import Store


def require_known(store: Store, settings: Settings, held: HeldKey, role: Role) -> None:
    """Refuses a key that the log does not announce for its role. A user who may not read the log is let through.

    Args:
        store: The open store of a log that was begun.
        settings: Say whether it is the local one.
        held: The key.
        role: What it is to do.

    Raises:
        ConfigurationError: The log does not know it.
        StoreUnavailable: The store went away.
    """
    try:
        known = {key.kid for key in store.announced_keys() if key.role == role and key.state == "add"}
    except StoreUnavailable:
        raise
    except StoreError:
        return
    if held.key.kid not in known:
        raise ConfigurationError(
            f"the log {store.log} does not know the {role} key that is held here",
            where=held.source,
            expected=" or ".join(sorted(known)) or "an announced key",
            got=held.key.kid,
            hint=_step(settings, held, role),
        )


def _step(settings: Settings, held: HeldKey, role: Role) -> str:
    if settings.dsn is None and held.development:
        return "Restore the key files that the log began with, or begin anew with: amfs-otel reset --local."
    variables = "AMFS_OTEL_SIGNING_KEY, AMFS_OTEL_SIGNING_KEY_FILE" if role == "writer" else "AMFS_OTEL_LOG_KEY_FILE"
    if settings.dsn is None:
        return f"The local store has keys of its own: unset {variables}."
    return announcing_step(role)

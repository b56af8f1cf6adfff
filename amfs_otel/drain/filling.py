"""Taking over what the spool holds for a store: deliver, seal, project, emit receipts."""

from dataclasses import dataclass, field

from amfs_otel.drain.custody import HeldKey, Role
from amfs_otel.drain.deliver import Courier, Delivered
from amfs_otel.drain.known_keys import require_known
from amfs_otel.drain.sealing import seal_all
from amfs_otel.errors import AmfsOtelError, ConfigurationError, StoreUnavailable
from amfs_otel.export.receipts import ReceiptEmitter
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory
from amfs_otel.store.destination import destination_of
from amfs_otel.store.postgres import Store

RECEIPTS_S = 5.0


@dataclass(slots=True)
class Filled:
    """What taking over the spool came to.

    Attributes:
        delivered: What came into the store.
        sealed: Records that got their entry.
        held_by: Which session holds sealing back, where one was seen.
        receipts: Receipts that the telemetry backend acknowledged.
        problems: Why something of it could not be done, one sentence each.
    """

    delivered: Delivered = field(default_factory=Delivered)
    sealed: int = 0
    held_by: str | None = None
    receipts: int = 0
    problems: list[str] = field(default_factory=list[str])


def fill(
    store: Store,
    settings: Settings,
    state: StateDirectory,
    writer: HeldKey | None,
    log_key: HeldKey | None,
    *,
    destinations: tuple[str, ...] = (),
) -> Filled:
    """Takes over what the spool holds for a store, then seals, projects and emits receipts if the log key is here.

    Args:
        store: The open, prepared store.
        settings: With the DSN of the store, or none for the local one.
        state: The state directory.
        writer: Signs what dead processes left unfinished.
        log_key: Seals.
        destinations: Whose frames; default: the store's own.

    Raises:
        StoreUnavailable: The store went away.
    """
    filled = Filled()
    writer = _known(store, settings, writer, "writer", filled.problems)
    log_key = _known(store, settings, log_key, "log", filled.problems)
    own = destination_of(settings.dsn, settings.log)
    for destination in destinations or (own,):
        courier = Courier(settings, state, destination, writer.key if writer is not None else None)
        try:
            _add(filled.delivered, courier.deliver(store))
        except StoreUnavailable:
            raise
        except AmfsOtelError as error:
            filled.problems.append(str(error))
    if log_key is None:
        return filled
    receipts = ReceiptEmitter(settings)
    try:
        done = seal_all(store, log_key.key, receipts=receipts)
        filled.sealed, filled.held_by = done.entries, done.held_by
    except StoreUnavailable:
        raise
    except AmfsOtelError as error:
        filled.problems.append(str(error))
    receipts.shutdown(RECEIPTS_S)
    filled.receipts = receipts.sent
    return filled


def _known(store: Store, settings: Settings, held: HeldKey | None, role: Role, problems: list[str]) -> HeldKey | None:
    """The key, if the log knows it; else why not becomes a problem."""
    if held is None:
        return None
    try:
        require_known(store, settings, held, role)
    except ConfigurationError as error:
        problems.append(str(error))
        return None
    return held


def _add(total: Delivered, one: Delivered) -> None:
    total.stored += one.stored
    total.already += one.already
    total.refused += one.refused
    total.adopted += one.adopted
    total.gaps += one.gaps

"""Sealing, and what follows an entry's commit: projection, then receipts."""

from collections.abc import Sequence
from dataclasses import dataclass

from amfs_otel import guard
from amfs_otel.chain.entry import Entry
from amfs_otel.chain.keys import KeyRing, SigningKey
from amfs_otel.chain.skeleton import decompose
from amfs_otel.export.receipts import ReceiptEmitter
from amfs_otel.graph.projection import project
from amfs_otel.store.postgres import Store

PROJECTION_BATCH = 500


@dataclass(frozen=True, slots=True)
class SealedNow:
    """What one call did.

    Attributes:
        entries: How many records got their entry.
        held_by: Which session holds sealing back, where one was seen.
    """

    entries: int
    held_by: str | None


def seal_all(
    store: Store,
    log_key: SigningKey,
    *,
    keys: KeyRing | None = None,
    receipts: ReceiptEmitter | None = None,
    full: bool = False,
) -> SealedNow:
    """Seals every sealable record, projects what was sealed, and queues one receipt for each.

    Args:
        store: The open store.
        log_key: A key that the log announced for role `log`.
        keys: Writer keys held here, to look at signatures.
        receipts: Where receipts go.
        full: Look at every record, not only at those that came since the last pass.

    Raises:
        StoreUnavailable: The store went away. Sealed entries stay sealed; their receipts may be missing.
        ConfigurationError: The log did not announce the key.
    """
    count = 0
    while True:
        sealed = store.seal(log_key, full=full, keys=keys)
        count += sealed.count
        if receipts is not None and receipts.active:
            _emit(store, sealed.entries, receipts)
        if sealed.count == 0:
            break
        full = False
    while project(store.connection, store.log, limit=PROJECTION_BATCH):
        pass
    return SealedNow(count, sealed.held_by)


def _emit(store: Store, entries: Sequence[tuple[Entry, str]], receipts: ReceiptEmitter) -> None:
    for entry, record_id in entries:
        stored = store.record(record_id)
        if stored is not None:
            decomposed = guard.run("receipts", decompose, stored.record)
            receipts.emit(stored.record, entry, decomposed.facts if decomposed is not None else None)

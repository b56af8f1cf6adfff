"""Reading documents out of the ledger: one record, or what an erasure took from it. Writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.record import Record
from amfs_otel.graph.documents import Document, document_from_record
from amfs_otel.store.connect import Connection
from amfs_otel.store.read import one_record

_ERASED = "SELECT record_id::text, part, erased_by::text FROM amfs_otel.erased WHERE record_id = ANY (%s::uuid[])"


def erased_parts(connection: Connection, record_ids: Sequence[str]) -> dict[str, dict[int, str]]:
    """Returns, per record, part number → id of the erasure record that named it, as far as it was projected."""
    found: dict[str, dict[int, str]] = {}
    for record_id, part, erased_by in connection.execute(_ERASED, (list(record_ids),)).fetchall():
        found.setdefault(record_id, {})[part] = erased_by
    return found


def document_of(record: Record, entry: Entry | None, erased: Mapping[int, str]) -> Document:
    """The document of a record without what an erasure record names, be its bytes already deleted or not.

    Raises:
        FormatError: The record cannot be read.
    """
    if erased:
        kept = tuple(part for part in record.parts if part.number not in erased)
        record = replace(record, parts=kept)
    return document_from_record(record, entry, erased)


def load(connection: Connection, log: str, record_id: str, erased: Mapping[int, str] | None = None) -> Document | None:
    """Returns the document of a stored record, None where there is no such record in the log.

    Args:
        connection: In a transaction.
        log: Name of the log.
        record_id: The whole id.
        erased: Parts that erasure records name which the projection does not know yet.

    Raises:
        FormatError: The record cannot be read.
    """
    stored = one_record(connection, log, record_id)
    if stored is None:
        return None
    known = erased_parts(connection, [record_id]).get(record_id, {})
    return document_of(stored.record, stored.entry, {**(erased or {}), **known})

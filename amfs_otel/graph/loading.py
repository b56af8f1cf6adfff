"""Reading documents out of the ledger: some records, or what an erasure took from them. Writes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from amfs_otel.chain.entry import Entry
from amfs_otel.chain.record import Record
from amfs_otel.graph.documents import NAMES_PART, Document, document_from_record
from amfs_otel.store.connect import Connection
from amfs_otel.store.read import LAST_PART, some_records

Erased = Mapping[str, Mapping[int, str]]
"""Record id → part number → id of the erasure record that named it."""

_ERASED = "SELECT record_id::text, part, erased_by::text FROM amfs_otel.erased WHERE record_id = ANY (%s::uuid[])"


def erased_parts(connection: Connection, record_ids: Sequence[str]) -> dict[str, dict[int, str]]:
    """Returns which parts erasure records named, as far as these were projected."""
    found: dict[str, dict[int, str]] = {}
    if not record_ids:
        return found
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


def load(
    connection: Connection, log: str, record_ids: Iterable[str], erased: Erased | None = None, *, texts: bool = True
) -> list[Document]:
    """Returns the documents of stored records, in the order of the ids; those that are not in the log are passed over.

    Args:
        connection: In a transaction.
        log: Name of the log.
        record_ids: Whole ids, each once.
        erased: Parts that erasure records name which the projection does not know yet.
        texts: Read the texts too. Without, each is as if it were erased.

    Raises:
        FormatError: A record cannot be read.
    """
    ids = list(record_ids)
    stored = some_records(connection, log, ids, last_part=LAST_PART if texts else NAMES_PART)
    projected = erased_parts(connection, [one.record.record_id for one in stored])
    documents: list[Document] = []
    for one in stored:
        record_id = one.record.record_id
        gone = {**(erased or {}).get(record_id, {}), **projected.get(record_id, {})}
        documents.append(document_of(one.record, one.entry, gone))
    return documents

"""Records that the projection does not know yet, read from the ledger, so that answers are never behind it.

Usually there are none or a few. Where nobody seals, all records are such; then the newest are looked at first, and all
only when nothing else answers the question.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from amfs_otel.chain.record import Record
from amfs_otel.errors import FormatError
from amfs_otel.graph.documents import Document
from amfs_otel.graph.explain import outcomes_of
from amfs_otel.graph.loading import document_of, erased_parts
from amfs_otel.graph.steps import steps_of
from amfs_otel.graph.texts import items, word
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query
from amfs_otel.store.read import StoredRecord, some_records

FEW, NEWEST = 128, 2048
"""How many of the newest records are looked at for unsealed ones: more where many of the first are unsealed."""


@dataclass(frozen=True, slots=True)
class Unprojected:
    """Readable records that are not projected, in order of arrival.

    Attributes:
        documents: Decisions, outcomes, amendments.
        count: How many records are waiting, those included that cannot be read.
        refs: Record id → outcome refs that it commits.
        erased: Record id → part number → erasure record, of erasure records that are waiting.
    """

    documents: list[Document]
    count: int
    refs: Mapping[str, frozenset[str]]
    erased: Mapping[str, Mapping[int, str]]

    def of_kind(self, kind: str) -> Iterator[Document]:
        """The records of one kind."""
        return (document for document in self.documents if document.kind == kind)

    def get(self, record_id: str) -> Document | None:
        """The record with this id, None where it is none of these."""
        return next((document for document in self.documents if document.record_id == record_id), None)

    def decisions_of_ref(self, ref: str) -> Iterator[str]:
        """Ids of decisions that come to have `ref` through these records."""
        for document in self.documents:
            if ref in self.refs.get(document.record_id, ()):
                if document.kind == "decision":
                    yield document.record_id
                elif (named := document.named_by("outcome_of")) is not None:
                    yield named


def unprojected(connection: Connection, log: str, newest: int | None = NEWEST) -> Unprojected:
    """Reads them; inside a snapshot.

    Args:
        connection: Its user needs SELECT only.
        log: Name of the log.
        newest: Look for unsealed ones among so many of the newest records, at most; None: among all.
    """
    ids = _ids(connection, log, newest if newest != NEWEST else FEW)
    if newest == NEWEST and len(ids) > FEW // 4:
        ids = _ids(connection, log, newest)
    stored = some_records(connection, log, ids)
    waiting = _erased_by(one.record for one in stored if one.record.kind == "erasure")
    known = erased_parts(connection, ids)
    documents: list[Document] = []
    for one in stored:
        record_id = one.record.record_id
        erased = {**waiting.get(record_id, {}), **known.get(record_id, {})}
        if one.record.kind != "erasure":
            documents += _readable(one, erased)
    refs = {document.record_id: _refs(document) for document in documents if document.kind != "amendment"}
    return Unprojected(documents, len(ids), refs, waiting)


def _ids(connection: Connection, log: str, newest: int | None) -> list[str]:
    rows = connection.execute(query("reading_unprojected"), {"log": log, "newest": newest}).fetchall()
    return [row[0] for row in rows]


def _readable(stored: StoredRecord, erased: Mapping[int, str]) -> list[Document]:
    try:
        return [document_of(stored.record, stored.entry, erased)]
    except FormatError:
        return []  # verify names it; no answer can be drawn from it


def _refs(document: Document) -> frozenset[str]:
    found = outcomes_of(document.record_id, steps_of(document))
    return frozenset(ref for one in found if (ref := word(one["outcome_ref"])) is not None)


def _erased_by(erasures: Iterable[Record]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for erasure in erasures:
        for record_id, part in items(erasure.head.get("erases")):
            found.setdefault(record_id, {})[part] = erasure.record_id
    return found

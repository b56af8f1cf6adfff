"""What concerns whole records of an answer and is not what was recorded, as far as the records themselves show it.

A record commits to its parts, and its header to the commitments. So whoever prints a part can see whether its bytes are
those that were signed: no key is needed and nothing else is read. Texts are looked at where they are printed
(`texts.resolved`). It is no verification: `verify` also checks signatures, the chain and what is not printed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from amfs_otel.chain.hashes import content_hash, record_hash
from amfs_otel.graph.documents import NAMES_PART, Document
from amfs_otel.graph.texts import altered_item, is_altered


def altered_records(documents: Iterable[Document]) -> Iterator[dict[str, Any]]:
    """Items of ``altered`` for header, commitments, structure and names, which stand everywhere in an answer.

    Args:
        documents: The records that the answer is drawn from.
    """
    for document in documents:
        record = document.record
        committed = content_hash(record.commitments).hex() == document.head.get("content_hash")
        if not committed or record_hash(record.header) != record.record_hash:
            yield altered_item("", document.record_id, None)
        for part in record.parts:
            if part.number <= NAMES_PART and is_altered(part, record.commitments[part.number - 1]):
                yield altered_item("", document.record_id, part.number)

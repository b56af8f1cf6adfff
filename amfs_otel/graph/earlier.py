"""Where the confidence in an entry was seen before a change of it that the window itself did not read before."""

from collections.abc import Iterable, Sequence

from amfs_otel.graph.documents import Document
from amfs_otel.graph.explain import Earlier, earlier_versions
from amfs_otel.graph.rows import sight_of
from amfs_otel.graph.steps import Step
from amfs_otel.model import Kind
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query

LAST = 2**62
_SEEING = (Kind.MEMORY_READ, Kind.MEMORY_WRITE, Kind.CONFIDENCE_CHANGE)
_LARGEST = 2**63 - 1

_Sight = tuple[int, int, float, str]
"""Place in the log, number of the step, confidence, record id."""


class EarlierSights:
    """Looks up at once what some records need; the newest sight before a record counts.

    Args:
        connection: In a transaction.
        log: Name of the log.
        records: Records with their steps, projected or not.
    """

    def __init__(self, connection: Connection, log: str, records: Sequence[tuple[Document, Sequence[Step]]]) -> None:
        self._sights: dict[tuple[str, int], list[_Sight]] = {}
        wanted = [
            (entry, version, LAST if document.sequence_number is None else document.sequence_number)
            for document, steps in records
            for entry, version in earlier_versions(steps)
            if abs(version) <= _LARGEST
        ]
        if not wanted:
            return
        entries, versions, places = zip(*sorted(set(wanted)), strict=True)
        scope = {"log": log, "entries": list(entries), "versions": list(versions), "places": list(places)}
        for entry, version, _, confidence, *seen in connection.execute(query("projection_earlier"), scope).fetchall():
            record_id, place, number = seen
            self._sights.setdefault((entry, version), []).append((place, number, confidence, record_id))
        asked = {(entry, version) for entry, version, _ in wanted}
        for document, steps in records:
            self._note(document, steps, asked)

    def _note(self, document: Document, steps: Iterable[Step], asked: set[tuple[str, int]]) -> None:
        """What these records themselves saw; they may not stand in the tables yet."""
        if document.sequence_number is None:
            return
        for step in steps:
            entry, version, confidence = sight_of(step)
            if step.kind in _SEEING and entry is not None and version is not None and confidence is not None:
                sights = self._sights.setdefault((entry, version), []) if (entry, version) in asked else []
                sights.append((document.sequence_number, step.number, confidence, document.record_id))

    def before(self, place: int | None) -> Earlier:
        """The lookup for a record at a place of the log, None for one that is not sealed."""
        limit = LAST if place is None else place

        def earlier(entry: str, version: int) -> tuple[float, str] | None:
            sights = [sight for sight in self._sights.get((entry, version), ()) if sight[0] < limit]
            if not sights:
                return None
            _, _, confidence, record_id = max(sights)
            return confidence, record_id

        return earlier

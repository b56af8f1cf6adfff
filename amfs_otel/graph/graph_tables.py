"""The tables ``node``, ``edge``, ``edge_evidence`` and ``counter``: collecting what a batch adds, and writing it.

What records add is collected first and written once per batch, keys sorted, so that a batch of records that touch the
same few agents and entries costs one upsert per edge, and two writers never wait for each other crosswise.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from amfs_otel.graph.edges import Edge, Evidence, Node
from amfs_otel.store.connect import Connection
from amfs_otel.store.queries import query

_REMOVE_EVIDENCE = (
    "DELETE FROM amfs_otel.edge_evidence WHERE record_id = ANY (%s::uuid[]) AND relation = coalesce(%s, relation)"
    " RETURNING source, relation, target"
)
_REMOVE_NODES = (
    "DELETE FROM amfs_otel.node AS n WHERE n.id = ANY (%s)"
    " AND NOT EXISTS (SELECT FROM amfs_otel.edge WHERE source = n.id)"
    " AND NOT EXISTS (SELECT FROM amfs_otel.edge WHERE target = n.id)"
)

# An agent without decisions is an agent whose name was erased.
_REMOVE_COUNTERS = (
    "DELETE FROM amfs_otel.counter AS c WHERE c.log = %s AND c.subject = ANY (%s) AND c.subject <> 'log'"
    " AND NOT EXISTS (SELECT FROM amfs_otel.counter AS d"
    " WHERE (d.log, d.subject, d.name) = (c.log, c.subject, 'decisions') AND d.value > 0)"
)

_StoredEdge = tuple[int, str, int]


@dataclass(slots=True)
class GraphChanges:
    """What records of one log add to, and take from, graph and counters.

    Attributes:
        log: Name of the log.
        evidence: To add, by owner and edge; the first one counts.
        affected: Edges of which evidence was taken away.
        counters: (subject, name) → what to add.
    """

    log: str
    evidence: dict[tuple[str, Edge], Evidence] = field(default_factory=dict[tuple[str, Edge], Evidence])
    affected: set[_StoredEdge] = field(default_factory=set[_StoredEdge])
    counters: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def add_evidence(self, found: Iterable[Evidence]) -> None:
        """Collects evidence; of several by one record for one edge the first counts."""
        for one in found:
            self.evidence.setdefault((one.owner, one.edge), one)

    def count(self, counts: Mapping[tuple[str, str], float], sign: int = 1) -> None:
        """Collects what counters gain (or lose: `sign` -1)."""
        for key, value in counts.items():
            self.counters[key] = self.counters.get(key, 0.0) + sign * value

    def forget(self, connection: Connection, owners: Collection[str], relation: str | None = None) -> None:
        """Takes away the evidence that records gave, for edges of one relation or of all, stored or just collected."""
        self.evidence = {
            (owner, edge): one
            for (owner, edge), one in self.evidence.items()
            if owner not in owners or relation not in (None, edge.relation)
        }
        rows = connection.execute(_REMOVE_EVIDENCE, (list(owners), relation)).fetchall()
        self.affected.update(tuple(row) for row in rows)

    def write(self, connection: Connection) -> None:
        """Writes all of it, inside the caller's transaction."""
        if self.evidence:
            self._write_evidence(connection)
        if self.affected:
            self._count_again(connection)
        changed = {key: value for key, value in self.counters.items() if value}
        if changed:
            subjects, names = [key[0] for key in changed], [key[1] for key in changed]
            parameters = {"log": self.log, "subjects": subjects, "names": names, "values": list(changed.values())}
            connection.execute(query("projection_counters"), parameters)
            connection.execute(_REMOVE_COUNTERS, (self.log, sorted(set(subjects))))

    def _write_evidence(self, connection: Connection) -> None:
        nodes = sorted({node for one in self.evidence.values() for node in (one.edge.source, one.edge.target)})
        parameters = {"log": self.log, "kinds": [node.kind for node in nodes], "names": [node.name for node in nodes]}
        rows = connection.execute(query("projection_nodes"), parameters).fetchall()
        ids = {Node(kind, name): number for number, kind, name in rows}
        evidence = [_stored(one, ids) for one in self.evidence.values()]
        connection.execute(query("projection_edges"), {"log": self.log, "evidence": json.dumps(evidence)})

    def _count_again(self, connection: Connection) -> None:
        edges = sorted(self.affected)
        parameters = {
            "sources": [edge[0] for edge in edges],
            "relations": [edge[1] for edge in edges],
            "targets": [edge[2] for edge in edges],
        }
        connection.execute(query("projection_edges_again"), parameters)
        ends = sorted({end for edge in edges for end in (edge[0], edge[2])})
        connection.execute(_REMOVE_NODES, (ends,))


def _stored(evidence: Evidence, ids: Mapping[Node, int]) -> dict[str, object]:
    source, relation, target = evidence.edge
    return {
        "record_id": evidence.owner,
        "source": ids[source],
        "relation": relation,
        "target": ids[target],
        "confidence": evidence.confidence,
        "first_seen": evidence.first_seen.isoformat(),
        "last_seen": evidence.last_seen.isoformat(),
    }

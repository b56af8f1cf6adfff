"""The canary rule in the database: every column of every table, for each setting of the ledger."""

import logging
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from amfs_otel import api, guard, pipeline
from amfs_otel.graph.projection import project
from amfs_otel.settings import LedgerContent, Settings
from tests.integration.ledgers import Ledger
from tests.support.canaries import KEPT, SECRET, Marked, Text
from tests.support.spooled import statuses

COLUMNS = """
SELECT c.table_name, c.column_name, c.udt_name
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema = 'amfs_otel' AND t.table_type = 'BASE TABLE'
"""
PROJECTED = {
    Text.DECISION: {"step.detail", "outcome.decision_summary"},
    Text.MESSAGE: {"step.detail"},
}
"""Where the projection may repeat a text that the ledger keeps: `explain`'s answer, derived again when it is erased."""

NAMES = {
    *("part.bytes", "step.detail", "step.entry", "step.tool_name", "outcome.outcome_ref", "outcome.confidence_changes"),
    "node.name",
}
"""Where names may stand: a part of their own, and the projection."""


def columns(dsn: str) -> dict[str, str]:
    """All that the schema holds: table.column → the text of all its rows."""
    found: dict[str, str] = {}
    with psycopg.connect(dsn) as connection:
        for table, column, kind in connection.execute(COLUMNS).fetchall():
            one = sql.Identifier(column)
            text = sql.SQL("encode({}, 'escape')" if kind == "bytea" else "{}::text").format(one)
            rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(text, sql.Identifier("amfs_otel", table)))
            found[f"{table}.{column}"] = "\n".join(row[0] or "" for row in rows.fetchall())
    return found


def agent_settings(state: Path, ledger: Ledger, **more: Any) -> Settings:
    """Those of an agent that delivers to `ledger`."""
    return Settings(
        state,
        program="p",
        sigterm=False,
        receipts=False,
        dsn=ledger.dsn,
        log=ledger.log,
        signing_key=f"hex:{ledger.writer_key.secret.hex()}",
        **more,
    )


def record(state: Path, ledger: Ledger, content: LedgerContent, *stories: Marked) -> None:
    """Each of `stories` as a session of its own: recorded, delivered, sealed and projected."""
    guard.reset()
    settings = agent_settings(state, ledger, ledger_content=content)
    started = pipeline.start(settings)
    assert started is not None
    try:
        for story in stories:
            with api.session("agent"):
                story.report()
        assert started.flush(20)
        started.worker.health.write(at_exit=True)
    finally:
        pipeline.stop()
        guard.reset()
    with ledger.store() as store:
        while store.seal(ledger.log_key, full=True).count:
            pass
        while project(store.connection, ledger.log):
            pass


@pytest.mark.parametrize("content", list(LedgerContent))
def test_texts_stand_in_parts_and_in_the_answer_of_explain_only(
    tmp_path: Path, one_ledger: Ledger, content: LedgerContent
) -> None:
    marked, secret = Marked(), Marked(lambda *_: SECRET)
    record(tmp_path / "state", one_ledger, content, marked, secret)
    held = columns(one_ledger.dsn)
    assert {"record.header", "entry.entry", "part.bytes", "step.detail", "edge.relation", "node.name"} <= held.keys()
    assert held["step.kind"].count("\n") > 2 * len(marked.examples) - 4, "both were projected"

    def holding(text: str) -> set[str]:
        return {column for column, texts in held.items() if text in texts}

    for canary in marked.canaries():
        found = holding(canary.text)
        if content in KEPT[canary.of]:
            assert "part.bytes" in found, canary.field
            assert found <= {"part.bytes", *PROJECTED[canary.of]}, canary.field
        else:
            assert found == set(), canary.field
    for name, where in marked.names().items():
        found = holding(name)
        assert "part.bytes" in found, where
        assert found <= NAMES, where
    assert holding(SECRET) == set()
    assert "part.bytes" in holding("[masked]")


@pytest.mark.parametrize(
    ("constraint", "told", "places"),
    [
        ("part ADD CHECK (position('canary'::bytea IN bytes) = 0)", "'refused': 1", set()),
        ("step ADD CHECK (detail::text NOT LIKE '%canary%')", "CheckViolation 23514", {"part.bytes"}),
    ],
    ids=["of a record", "of the projection"],
)
def test_a_refusal_says_nothing_of_what_was_refused(
    tmp_path: Path,
    one_ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
    constraint: str,
    told: str,
    places: set[str],
) -> None:
    """The server's own message quotes the row; neither a log line nor a status file nor a table repeats it."""
    caplog.set_level(logging.DEBUG)
    one_ledger.sql(f"ALTER TABLE amfs_otel.{constraint} NOT VALID")
    record(tmp_path / "state", one_ledger, LedgerContent.ALL, Marked())
    held, status = columns(one_ledger.dsn), str(statuses(tmp_path / "state"))
    assert told in status + held["projected.skipped"]
    assert {column for column, text in held.items() if "canary" in text} == places
    assert "canary" not in caplog.text + status

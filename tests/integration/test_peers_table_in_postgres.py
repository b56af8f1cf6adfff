"""Rows 18, 19 and 20 of the peers' faults to their end, in a real database: see `tests/instrumentation/test_peers_table.py`."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amfs_otel import api, guard, instrumentor, pipeline
from amfs_otel.chain.canonical import jcs
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.settings import LedgerContent
from tests.instrumentation.peers_calls import SECRET, odd_calls, secret_calls
from tests.integration.ledgers import Ledger
from tests.integration.test_canaries_in_database import agent_settings, columns
from tests.support.programs import ran
from tests.support.spooled import all_bytes

CLIENTS = pytest.mark.parametrize("library", ["openai", "anthropic"])
ROW_LIMIT_BYTES = 64_000


@contextmanager
def recording(state: Path, ledger: Ledger, **more: Any) -> Iterator[None]:
    """What is done inside is captured by default settings and `more`, delivered to `ledger` and sealed there."""
    guard.reset()
    settings = agent_settings(state, ledger, **more)
    started = pipeline.start(settings)
    assert started is not None
    try:
        instrumentor.instrument(["openai", "anthropic", "langchain"])
        with api.session("agent"):
            yield
        assert started.flush(20)
        assert guard.counters() == {}
    finally:
        instrumentor.uninstrument()
        pipeline.stop()
        guard.reset()
    seal(ledger)


def seal(ledger: Ledger) -> None:
    with ledger.store() as store:
        while store.seal(ledger.log_key, full=True).count:
            pass


@CLIENTS
def test_18_a_secret_is_in_no_row_no_log_and_no_file_by_default(
    tmp_path: Path, one_ledger: Ledger, model_server: ModelServer, caplog: pytest.LogCaptureFixture, library: str
) -> None:
    caplog.set_level(logging.DEBUG, "amfs_otel")
    with recording(tmp_path / "state", one_ledger):
        secret_calls(library, model_server)
    held = columns(one_ledger.dsn)
    assert "echo" in held["part.bytes"], "it was recorded"
    assert [column for column, text in held.items() if SECRET in text] == []
    assert SECRET.encode() not in all_bytes(tmp_path / "state")
    assert SECRET not in "".join(one.getMessage() for one in caplog.records if one.name.startswith("amfs_otel"))


@CLIENTS
def test_19_values_of_any_kind_are_a_small_row_that_still_verifies_after_a_round_trip(
    tmp_path: Path, one_ledger: Ledger, model_server: ModelServer, library: str
) -> None:
    """What JSON has no form for has one in the record: jsonb takes it in and gives the same value back."""
    with recording(tmp_path / "state", one_ledger, ledger_content=LedgerContent.ALL):
        odd_calls(library, model_server)
    assert one_ledger.verify().verdict.name == "INTACT"
    parts = [bytes(row[0]) for row in one_ledger.sql("SELECT bytes FROM amfs_otel.part WHERE bytes IS NOT NULL")]
    objects = [part for part in parts if part[:1] in (b"{", b"[")]
    assert max(map(len, parts)) < ROW_LIMIT_BYTES
    assert [b"NaN" in part for part in objects].count(True) == 1, "the tool's result is among them"
    for part in objects:
        ((back,),) = one_ledger.sql("SELECT (%s::jsonb)::text", part.decode())
        assert jcs(json.loads(back)) == part


FORKED = """
from amfs_otel.demo.model_server import ModelServer

library = os.environ["LIBRARY"]

def ask(server):
    with api.session("agent"):
        tool("before")
        if library == "openai":
            from openai import OpenAI
            with OpenAI(base_url=server.base_url, api_key="k") as client:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        else:
            from anthropic import Anthropic
            with Anthropic(base_url=server.origin, api_key="k") as client:
                client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}])

with ModelServer() as server:
    ask(server)
    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            ask(server)
            os._exit(0 if api.flush() else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    ask(server)
"""
"""Celery's prefork pool does so: a child that ends its task ends by `os._exit`."""


@CLIENTS
def test_20_after_a_fork_every_session_is_sealed_once(tmp_path: Path, one_ledger: Ledger, library: str) -> None:
    done = ran(
        FORKED,
        tmp_path / "state",
        LIBRARY=library,
        AMFS_OTEL_DSN=one_ledger.dsn,
        AMFS_OTEL_SIGNING_KEY=f"hex:{one_ledger.writer_key.secret.hex()}",
    )
    assert (done.code, done.err) == (0, "")
    seal(one_ledger)
    assert one_ledger.verify().verdict.name == "INTACT"
    rows = one_ledger.sql(
        """
        SELECT e.sequence_number, r.id, r.session FROM amfs_otel.entry e
        JOIN amfs_otel.record r USING (record_hash) WHERE r.kind = 'decision'
        """
    )
    assert len(rows) == 5
    assert [len({row[column] for row in rows}) for column in range(3)] == [5, 5, 5]
    assert one_ledger.sql("SELECT count(*) FROM amfs_otel.record WHERE kind = 'gap'") == [(0,)]

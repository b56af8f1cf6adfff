"""A fallback DSN whose database is slow to answer, or never does: the journal and the process's end do not wait."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amfs_otel import api, capture, pipeline
from amfs_otel.assemble.journal import EventPrepared, ProcessBegan
from amfs_otel.capture import Kind
from amfs_otel.chain.keys import generate_key_text
from amfs_otel.pipeline import Pipeline, delivery
from amfs_otel.settings import Settings
from amfs_otel.spool import StateDirectory, destinations, list_segments
from amfs_otel.store.destination import LOCAL, destination_of
from tests.support.spooled import journaled, spooled

Started = Callable[..., Pipeline]
DSN = "postgresql://nobody@127.0.0.1:1/none"
THERE = destination_of(DSN, "default")


class Database:
    """Answers when it is told to.

    Attributes:
        asked: Set once the question lies there.
        answer: The DSN that counts, `None` where our schema is not in that database.
    """

    def __init__(self) -> None:
        self.asked, self._may = threading.Event(), threading.Event()
        self.answer: str | None = None

    def settled(self, _settings: Settings) -> str | None:
        self.asked.set()
        self._may.wait()
        return self.answer

    def answers(self, dsn: str | None) -> None:
        self.answer = dsn
        self._may.set()


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database()
    monkeypatch.setattr(delivery, "_settled_dsn", made.settled)
    yield made
    made.answers(None)


def tool() -> None:
    step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t"})
    assert step is not None
    step.end({"success": True})


def journals(state: Path) -> set[str]:
    """The destinations for which a journal lies there."""
    directory = StateDirectory(state)
    return {
        name
        for name in destinations(directory)
        if any(one.stream == "journal" for one in list_segments(directory, name))
    }


def test_the_first_event_is_in_the_journal_while_the_database_hangs(
    running: Started, state: Path, database: Database
) -> None:
    made = running(dsn=DSN, dsn_is_fallback=True)
    with api.session("agent"):
        tool()
    assert made.spool_now(30)
    assert database.asked.wait(30)
    assert type(journaled(state)[0]) is ProcessBegan
    assert [item.event.facts["kind"] for item in journaled(state) if isinstance(item, EventPrepared)] == ["tool_call"]
    assert spooled(state) == [], "whose key signs is not known yet"


@pytest.mark.parametrize(("answer", "where"), [(DSN, THERE), (None, LOCAL)])
def test_what_waited_goes_where_the_answer_says(
    running: Started, state: Path, database: Database, answer: str | None, where: str
) -> None:
    made = running(dsn=DSN, dsn_is_fallback=True, signing_key=generate_key_text())
    with api.session("agent"):
        tool()
    with api.session("other"):
        tool()
        assert made.spool_now(30)
        assert database.asked.wait(30)
        database.answers(answer)
        assert made.worker.delivery.settled(time.monotonic() + 30)
        assert made.spool_now(30)
        (one,) = spooled(state, where)
        assert one.facts["agent"] == "agent"
        assert journals(state) == {where}
        assert any(isinstance(item, EventPrepared) for item in journaled(state)), "of the open session"
    assert made.spool_now(30)
    assert [each.facts["agent"] for each in spooled(state, where)] == ["agent", "other"]


def test_a_process_that_ends_before_the_answer_keeps_its_traces_here(
    running: Started, state: Path, database: Database
) -> None:
    running(dsn=DSN, dsn_is_fallback=True, exit_timeout_s=2.0)
    with api.session("agent"):
        tool()
    assert database.asked.wait(30)
    pipeline.stop()
    (one,) = spooled(state, LOCAL)
    assert one.facts["agent"] == "agent"
    assert journals(state) == set()

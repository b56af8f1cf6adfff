"""The canary rule of the content policy, field by field, for every setting: where each class of text may be found."""

from pathlib import Path

import pytest

from amfs_otel import capture
from amfs_otel.chain.record import record_from_bytes, record_to_bytes
from amfs_otel.chain.skeleton import decompose
from amfs_otel.errors import AmfsOtelError
from amfs_otel.model import Deferred, Kind
from amfs_otel.settings import LedgerContent, SpanContent
from tests.support.canaries import SECRET, Canary, Marked, Text, a_run, expected, shown
from tests.support.spooled import spooled

EVERY_LEDGER = pytest.mark.parametrize("ledger", list(LedgerContent))
EVERY_SPAN = pytest.mark.parametrize("span", list(SpanContent))
ERROR = Canary("error_message", "canary-message-error-end", Text.MESSAGE)


def failures(text: str) -> None:
    """A step that fails, and a failure without a step."""
    step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t"})
    assert step is not None
    step.fail(ValueError(text))
    capture.instant(Kind.ERROR, "amfs", {"operation": "o"}, error=ValueError(text))


@EVERY_LEDGER
@EVERY_SPAN
def test_each_text_is_found_exactly_where_its_class_allows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ledger: LedgerContent, span: SpanContent
) -> None:
    marked = Marked()
    canaries = [*marked.canaries(), ERROR]
    assert min(sum(canary.of is of for canary in canaries) for of in (Text.DECISION, Text.MESSAGE)) > 10
    with a_run(tmp_path / "state", caplog, ledger, span) as run:
        left = run.tell(lambda: (failures(ERROR.text), marked.report()))
    assert "gen_ai.client" in left["metrics"]
    assert left.found(canaries) == expected(canaries, ledger, span)
    for name, where in marked.names().items():
        held = left.holding(name)
        assert {"files", "parts i"} <= held, where
        assert not held & {"headers", "parts s", "logs", "statuses"}, f"{where} is erasable"


@EVERY_LEDGER
@EVERY_SPAN
def test_a_secret_is_nowhere_at_any_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ledger: LedgerContent, span: SpanContent
) -> None:
    marked = Marked(lambda *_: SECRET)
    with a_run(tmp_path / "state", caplog, ledger, span) as run:
        left = run.tell(lambda: (failures(f"failed with {SECRET}"), marked.report()))
    assert left.holding(SECRET) == set()
    assert "parts i" in left.holding("[masked]")


def test_no_error_of_ours_says_what_was_in_a_damaged_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes changed and missing everywhere in a record that keeps all texts: what is raised holds none of them."""
    marked = Marked()
    with a_run(tmp_path / "state", caplog, LedgerContent.ALL, SpanContent.NO_CONTENT) as run:
        run.tell(marked.report)
    (one,) = spooled(tmp_path / "state")
    wire = record_to_bytes(one.record)
    raised: list[BaseException] = []
    for place in range(0, len(wire), max(1, len(wire) // 400)):
        for damaged in (
            wire[:place],
            wire[:place] + b"\xff" + wire[place + 1 :],
            wire[:place] + b'"' + wire[place + 1 :],
        ):
            try:
                decompose(record_from_bytes(damaged))
            except (AmfsOtelError, ValueError, LookupError, TypeError) as error:
                raised.append(error)
    assert len(raised) > 400
    assert "canary" not in shown(raised)


@EVERY_SPAN
def test_no_failure_of_ours_says_what_it_was_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, span: SpanContent
) -> None:
    """A mapping that fails with the text in its message is reported by type and place."""

    def failing(raw: str) -> str:
        raise ValueError(f"cannot be mapped: {raw}")

    def story() -> None:
        step = capture.begin(
            Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t", "arguments": Deferred(failing, ERROR.text)}
        )
        assert step is not None
        step.end({})

    with a_run(tmp_path / "state", caplog, LedgerContent.DECISION, span) as run:
        left = run.tell(story)
    assert "internal error in assemble (ValueError at " in left["logs"]
    assert "ValueError at " in left["statuses"]
    assert left.holding(ERROR.text) == set()

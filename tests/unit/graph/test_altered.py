"""What is not as it was recorded is said wherever it is printed."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from amfs_otel.graph.documents import document_from_record
from amfs_otel.graph.explain import explanation
from amfs_otel.graph.render import explain_text, show_text
from amfs_otel.graph.showing import shown_record
from tests.support.stories import event, window, writer
from tests.unit.graph.test_render import printed

NOTE = "amfs-otel verify"
FACTS = window(
    "agent",
    [
        event("tool_call", 1.0, 2.0, tool_name="pay", arguments={"amount": 5}, result="paid"),
        event("outcome", 2.0, 0.0, outcome_ref="BIL-7", outcome_type="success", decision_summary="refund 5"),
    ],
)


def changed_in(record, old, new):
    """The record as somebody left it who may write the table of parts."""
    parts = tuple(
        replace(one, data=one.data.replace(old, new)) if one.data is not None else one for one in record.parts
    )
    assert parts != record.parts
    return replace(record, parts=parts)


def fits(name, answer):
    schema = json.loads((Path(__file__).parents[3] / f"docs/schemas/{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(answer)


def both(record, **options):
    """Both answers, and what is printed of them."""
    document = document_from_record(record)
    explained, shown = explanation(document, outcomes=[], **options), shown_record(document)
    fits("explain", explained)
    fits("show", shown)
    return explained, shown, printed(explain_text(explained)), printed(show_text(shown))


def test_what_is_as_it_was_recorded_is_not_spoken_of():
    for ledger in ("none", "decision", "all"):
        *answers, explained, shown = both(writer(ledger).record(FACTS))
        assert [one["altered"] for one in answers] == [[], []]
        assert "altered" not in explained + shown
        assert NOTE not in explained + shown


def test_a_changed_text_is_marked_where_it_stands():
    record = writer("all").record(FACTS)
    part = next(one.number for one in record.parts if one.data == b"refund 5")
    explained, shown, text, whole = both(changed_in(record, b"refund 5", b"refund 9"))
    assert explained["altered"] == [
        {"path": path, "record_id": record.record_id, "part": part}
        for path in ("decision_summary", "outcomes[0].decision_summary")
    ]
    assert shown["altered"] == [{"path": "events[1].decision_summary", "record_id": record.record_id, "part": part}]
    assert text.count("refund 9 [altered]") == 2
    assert whole.count("refund 9 [altered]") == 1
    for one in (text, whole):
        assert one.count(NOTE) == 1
        assert one.count("[altered]") == one.count("refund 9") + 1, "nothing else is marked, but for the note"


def test_a_changed_value_that_is_no_string_is_marked():
    explained, _, text, whole = both(changed_in(writer("all").record(FACTS), b'"amount": 5', b'"amount": 7'))
    assert [one["path"] for one in explained["altered"]] == ["tool_calls[0].arguments"]
    assert '{"amount": 7} [altered]' in text
    assert '{"amount": 7} [altered]' in whole


@pytest.mark.parametrize(
    ("old", "new", "part"), [(b'"status":"complete"', b'"status":"complets"', 1), (b"BIL-7", b"BIL-8", 2)]
)
def test_changed_structure_or_names_concern_the_whole_record(old, new, part):
    record = writer("all").record(FACTS)
    explained, shown, text, whole = both(changed_in(record, old, new))
    for answer in (explained, shown):
        assert answer["altered"] == [{"path": "", "record_id": record.record_id, "part": part}]
    for one in (text, whole):
        assert f"not as recorded: record …{record.record_id[-8:]};" in one
        assert one.count(NOTE) == 1


def test_a_commitment_that_was_changed_with_its_part_is_told_by_the_header():
    record = writer("all").record(FACTS)
    forged = changed_in(record, b"refund 5", b"refund 9")
    other = writer("all").record(FACTS)
    for damaged in (
        replace(forged, commitments=other.commitments, parts=other.parts),
        replace(record, record_hash=other.record_hash),
    ):
        explained, shown, text, whole = both(damaged)
        assert {"path": "", "record_id": record.record_id, "part": None} in explained["altered"]
        assert {"path": "", "record_id": record.record_id, "part": None} in shown["altered"]
        assert NOTE in text
        assert NOTE in whole


def test_a_text_without_its_salt_cannot_be_what_was_recorded():
    record = writer("all").record(FACTS)
    parts = tuple(replace(one, salt=None) if one.data == b"refund 5" else one for one in record.parts)
    explained, *_ = both(replace(record, parts=parts))
    assert {one["path"] for one in explained["altered"]} == {"decision_summary", "outcomes[0].decision_summary"}


def test_an_outcome_of_another_record_names_that_record():
    one = writer("all")
    decision = one.document(window("agent", []))
    late = changed_in(one.record(FACTS, kind="outcome"), b"refund 5", b"refund 9")
    answer = explanation(decision, outcomes=[document_from_record(late)])
    assert {item["record_id"] for item in answer["altered"]} == {late.record_id}
    assert "refund 9 [altered]" in printed(explain_text(answer))


def test_erased_and_withheld_texts_are_not_altered():
    document = writer("decision").document(FACTS, erase="di")
    answer = explanation(document, outcomes=[])
    assert answer["altered"] == []

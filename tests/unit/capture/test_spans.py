"""Spans and metrics of every kind against the oracle; content attributes; nothing that an exporter could not encode."""

import json
from array import array
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from amfs_otel import api, capture
from amfs_otel.capture.content import MASK, Masker
from amfs_otel.capture.copies import Each
from amfs_otel.capture.span_content import (
    ALL_REMEMBERED_BYTES,
    REMEMBERED_BYTES,
    Remembered,
    content_attributes,
)
from amfs_otel.model import Deferred, Kind
from amfs_otel.settings import SpanContent
from tests.support.capturing import Bench, capturing
from tests.support.every_kind import EVERY_KIND, Example
from tests.support.oracle import Rules, check_metrics, check_spans, failures
from tests.support.otlp_decode import Metric, Span, metrics_from_request, span_from_readable

CONTENT = {"span_content": SpanContent.SPAN_AND_EVENT}


def reported(error: BaseException | None = None, **settings: Any) -> tuple[list[Span], list[Metric], Bench]:
    with capturing(**settings) as bench:
        with api.session("agent", id="session-of-the-application"):
            for example in EVERY_KIND:
                example.report(error)
        data = bench.reader.get_metrics_data()
        assert data is not None
        return [span_from_readable(s) for s in bench.spans()], metrics_from_request(encode_metrics(data)), bench


IDS = ("session-of-the-application", "conversation-of-the-application")


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("error", [None, TimeoutError("message-canary")])
def test_every_kind_passes_the_oracle(content: bool, dual: bool, error: BaseException | None) -> None:
    spans, metrics, _ = reported(error, semconv_dual=dual, **(CONTENT if content else {}))
    rules = Rules(dual=dual, content=content, conversation_ids=IDS)
    assert failures(check_spans(spans, rules)) == []
    assert failures(check_metrics(metrics, rules)) == []
    assert len(spans) == 1 + sum(1 for example in EVERY_KIND if example.result is not None)


def test_content_is_on_spans_only_where_the_setting_says_so() -> None:
    off, metrics, _ = reported()
    assert "canary" not in json.dumps([[s.attributes, [e.attributes for e in s.events]] for s in off]).replace(
        "name-canary", ""
    )
    assert "canary" not in json.dumps([point[0] for metric in metrics for point in metric.points])
    on, _, _ = reported(**CONTENT)
    shown = json.dumps([s.attributes for s in on])
    assert "message-canary" in shown
    assert "decision-canary" in shown


def span_of(example: Example, **settings: Any) -> ReadableSpan:
    with capturing(**settings) as bench:
        example.report()
        return bench.spans()[0]


HOSTILE_TEXTS = {"nul": "a\0b", "surrogate": "a\ud800b", "long": "x" * 100_000}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
@pytest.mark.parametrize("content", [False, True])
def test_no_text_breaks_the_export_of_the_batch(text: str, content: bool) -> None:
    """One string that protobuf refuses costs an exporter everything that it was about to send."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return text if isinstance(value, str) else value

    with capturing(**(CONTENT if content else {})) as bench:
        with api.session(text, id=text):
            for example in EVERY_KIND:
                fields = replaced(example.fields)
                if "operation" in fields:
                    fields |= {key: example.fields[key] for key in ("operation", "provider") if key in example.fields}
                result = None if example.result is None else replaced(example.result)
                Example(example.kind, example.source, fields, result).report()
            api.record_context(text, text, source=text)
            api.outcome(text, text, text)
        spans = bench.spans()
        encode_spans(spans)
        data = bench.reader.get_metrics_data()
        assert data is not None
        encode_metrics(data)
        if not content:
            longest = max(len(v) for s in spans for v in (s.attributes or {}).values() if isinstance(v, str))
            assert longest <= 2048, "Tempo cuts at 2 KB"


SECRET = "sk-proj-abcdefghijklmnop1234"


@pytest.mark.parametrize("content", [False, True])
def test_a_secret_in_any_name_is_masked_in_span_names_attributes_and_metrics(content: bool) -> None:
    with capturing(**(CONTENT if content else {})) as bench:
        with api.session(f"agent {SECRET}", id=f"id {SECRET}"):
            for example in EVERY_KIND:
                text = json.dumps([example.fields, example.result]).replace("name-canary", SECRET)
                text = text.replace('"gpt-9"', f'"{SECRET}"').replace('"look"', f'"{SECRET}"')
                text = text.replace("conversation-of-the-application", SECRET).replace("message-canary", SECRET)
                fields, result = json.loads(text.replace("decision-canary", SECRET).replace('"l"', f'"{SECRET}"'))
                Example(example.kind, example.source, fields, result).report()
        told = "".join(span.to_json() for span in bench.spans())
        data = bench.reader.get_metrics_data()
        assert data is not None
        assert SECRET not in told + data.to_json()
        assert MASK in told


def test_an_attribute_that_was_shortened_is_still_what_its_schema_says() -> None:
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": 'with "quotes" and ü ' * 200}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "short"}]},
    ]
    fields = {"input_messages": messages, "arguments": {"a": "b" * 500}, "result": "r" * 500}
    for limit in (0, 1, 2, 60, 200, 300, 1000, 4100, 100_000):
        found = content_attributes(Kind.LLM_CALL, fields, Masker(), limit)
        for key in ("gen_ai.input.messages", "gen_ai.tool.call.arguments"):
            value = json.loads(str(found[key]))
            assert isinstance(value, list if key == "gen_ai.input.messages" else dict)
            assert len(str(found[key])) <= max(limit, 2)
        whole = sum(len(json.dumps(v, separators=(",", ":"), ensure_ascii=False)) for v in fields.values())
        kept = sum(len(str(v)) for k, v in found.items() if not k.startswith("amfs."))
        assert found.get("amfs.content.shortened_bytes", 0) == whole - kept
    found = content_attributes(Kind.LLM_CALL, fields, Masker(), 300)
    roles = [message["role"] for message in json.loads(str(found["gen_ai.input.messages"]))]
    assert roles == ["user", "assistant"]


def test_masking_is_no_shortening() -> None:
    fields = {"result": f"the key is {SECRET}", "arguments": {"k": SECRET}}
    found = content_attributes(Kind.TOOL_CALL, fields, Masker(), None)
    assert found == {
        "gen_ai.tool.call.result": f'"the key is {MASK}"',
        "gen_ai.tool.call.arguments": f'{{"k":"{MASK}"}}',
    }


def test_deferred_content_is_made_for_the_span_too() -> None:
    fields = {"result": Deferred(lambda raw: raw.upper(), "low")}
    assert content_attributes(Kind.TOOL_CALL, fields, Masker(), None) == {"gen_ai.tool.call.result": '"LOW"'}


def test_definitions_that_recur_are_made_once_and_others_never_remembered() -> None:
    made: list[bytes] = []

    def definitions(raw: bytes) -> Any:
        made.append(raw)
        return [{"type": "function", "name": raw.decode()}]

    remembered = Remembered()
    for raw in (b"look", b"look", b"find", SECRET.encode(), SECRET.encode(), b"look"):
        fields = {"tool_definitions": Deferred(definitions, raw), "result": Deferred(definitions, raw)}
        shown = content_attributes(Kind.LLM_CALL, fields, Masker(), None, remembered)
        assert shown["gen_ai.tool.definitions"] == shown["gen_ai.tool.call.result"]
        assert SECRET not in str(shown)
    assert [made.count(raw) for raw in (b"look", b"find", SECRET.encode())] == [4, 2, 3]
    assert len(remembered) == 3


def test_a_system_prompt_that_recurs_is_made_once() -> None:
    made: list[Any] = []

    def parts(raw: Any) -> Any:
        made.append(raw)
        return [{"type": "text", "content": str(raw)}]

    remembered = Remembered()
    for raw in ("be brief", "be brief", ["be", "brief"], ["be", "brief"]):
        fields = {"system_instructions": Deferred(parts, raw)}
        shown = content_attributes(Kind.LLM_CALL, fields, Masker(), None, remembered)
        assert shown == content_attributes(Kind.LLM_CALL, fields, Masker(), None)
    assert made.count("be brief") == 3
    assert made.count(["be", "brief"]) == 4


def test_few_texts_are_remembered() -> None:
    remembered = Remembered()
    for number in range(100):
        spoken = [{"role": "user", "parts": [{"type": "text", "content": "t" * number * 1000}]}]
        fields = {"tool_definitions": Deferred(list, b"t" * number * 1000), "input_messages": spoken}
        content_attributes(Kind.LLM_CALL, fields, Masker(), None, remembered)
        assert sum(len(raw) + len(text) for (_, raw), (text, _) in remembered.items()) <= ALL_REMEMBERED_BYTES
    assert remembered
    assert all(len(raw) <= REMEMBERED_BYTES for _, raw in remembered)


def said(text: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


class Loud(str):
    __slots__ = ()


@pytest.mark.parametrize("limit", [None, 60])
def test_a_conversation_looks_the_same_whether_it_was_said_before_or_not(limit: int | None) -> None:
    remembered = Remembered()
    conversations: list[list[Any]] = [
        [said("good morning"), said(f"my key is {SECRET}")],
        [said("good morning"), said(f"my key is {SECRET}"), said('a "quoted"\nüñ\ud800\0 text'), said("")],
        [
            said("good morning"),
            said(2**63),
            said(float("nan")),
            said({1: "a", "$b": [Loud("c"), b"d", bytearray(b"d")]}),
        ],
        [said("good morning"), {"role": "tool", "parts": []}, said(["x" * 40] * 3), "no message", None],
        [],
    ]
    for conversation in [*conversations, *conversations]:
        fields = {"input_messages": conversation}
        shown = content_attributes(Kind.LLM_CALL, fields, Masker(), limit, remembered)
        assert shown == content_attributes(Kind.LLM_CALL, fields, Masker(), limit)
        assert SECRET not in str(shown)
    assert remembered
    assert not any(SECRET.encode() in raw for _, raw in remembered)


def test_a_message_that_was_changed_is_not_the_one_that_was_said_before() -> None:
    remembered, message = Remembered(), said("before")
    for text in ("before", "after"):
        message["parts"][0]["content"] = text
        shown = content_attributes(Kind.LLM_CALL, {"input_messages": [message]}, Masker(), None, remembered)
        assert json.loads(str(shown["gen_ai.input.messages"])) == [said(text)]


def test_messages_that_recur_are_made_once_by_what_is_shown_of_them() -> None:
    made: list[Any] = []

    def one(raw: dict[str, Any]) -> Any:
        made.append(raw["text"])
        return said(raw["text"])

    each, remembered = Each(one, lambda raw: raw["text"]), Remembered()
    large: list[Any] = ["t" * REMEMBERED_BYTES, {"b": b"d"}, {"b": "d"}, array("b")]
    for texts in (["a"], ["a", "b"], ["a", SECRET], ["a", SECRET, *large], []):
        raw = [{"text": text, "unseen": len(texts)} for text in texts]
        shown = content_attributes(Kind.LLM_CALL, {"input_messages": Deferred(each, raw)}, Masker(), None, remembered)
        plain = {"input_messages": [said(text) for text in texts]}
        assert shown == content_attributes(Kind.LLM_CALL, plain, Masker(), None)
        assert SECRET not in str(shown)
    assert [made.count(text) for text in ("a", "b", SECRET, *large)] == [1, 1, 2, 1, 1, 1, 1]
    assert len(remembered) == 3


class Broken(SpanProcessor):
    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("a processor of the application")

    def on_end(self, span: Any) -> None:
        if self.where == "end":
            raise RuntimeError("a processor of the application")


@pytest.mark.parametrize("where", ["start", "end"])
def test_a_span_processor_that_fails_costs_spans_never_the_trace(where: str) -> None:
    with capturing() as bench:
        bench.provider.add_span_processor(Broken(where))
        for _ in range(30):
            for example in EVERY_KIND[:3]:
                example.report()
        (made,) = bench.traces()
        assert len(made.facts["events"]) == 90
        assert {event["status"] for event in made.facts["events"]} == {"ok"}


def test_what_a_sampler_drops_is_in_the_trace_all_the_same() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    with capturing() as bench:
        bench.capture.tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("amfs_otel")
        for example in EVERY_KIND:
            example.report()
        assert bench.spans() == []
        assert sum(len(made.facts["events"]) for made in bench.traces()) == len(EVERY_KIND)


def test_a_step_ends_once() -> None:
    with capturing() as bench:
        step = capture.begin(Kind.TOOL_CALL, "amfs_otel", {"tool_name": "t"})
        assert step is not None
        step.end({"success": True})
        step.fail(RuntimeError())
        step.end({"success": False})
        (made,) = bench.traces()
        assert [event["success"] for event in made.facts["events"]] == [True]
        assert len([span for span in bench.spans() if span.name == "execute_tool t"]) == 1

"""The lines of an explanation: the seed's four blocks in words, each line with the number of its step.

Pure; `render` draws them. A line is made of words and, where a text was withheld, of the item of ``withheld`` that
says why.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from amfs_otel.graph.steps import context_name
from amfs_otel.graph.texts import NO_REF, items, members
from amfs_otel.model import Kind

Answer = Mapping[str, Any]
Word = tuple[str | Answer, Literal["", "name", "state", "altered"]]

TEXT_CHARACTERS = 240
DOCUMENTS = 5
"""So many documents of a retrieval are named on its line."""
_LEFT = ("closed_early", "abandoned", "interpreter_exit")
"""How a stream ends that its reader left; where it failed or was cancelled, its error says so."""
_WRITTEN = "cache_write_tokens"
"""Said only where it was so: most calls write nothing, and say nothing of it."""
_TOKENS = (
    ("input_tokens", "in"),
    ("cached_tokens", "cached"),
    (_WRITTEN, "written to cache"),
    ("output_tokens", "out"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `step` is the number of its event, None where it comes from another record."""

    step: int | None
    words: Sequence[Word]


class _Words:
    """Looks up, for one item of an answer, its values and what was withheld of them."""

    def __init__(self, answer: Answer, key: str, place: int) -> None:
        self._withheld: Mapping[str, Answer] = {one["path"]: one for one in answer["withheld"]}
        self._answer = answer
        self._path = f"{key}[{place}]"
        self.record_id: str = answer["record_id"]

    def text(self, value: Any, name: str) -> Word | None:
        """The value of field `name` as words, or why it is not there; None where there never was one."""
        path = f"{self._path}.{name}"
        withheld = self._withheld.get(path)
        if withheld is not None:
            return withheld, ""
        return None if value is None else (_short(value), "altered" if is_marked(self._answer, path) else "")

    def after(self, colon: str, value: Any, name: str) -> list[Word]:
        """`text` with something before it, or nothing; nothing for an empty text too, be it kept or not."""
        word = self.text(value, name)
        return [] if word is None or _is_empty(word[0]) else [(colon, ""), word]

    def name(self, value: Any, name: str) -> Word:
        """A name that a line cannot do without."""
        word = self.text(value, name)
        if word is None:
            return "(unknown)", ""
        return word[0], "name"

    def entry(self, item: Answer) -> list[Word]:
        """``entity_path/key v3``."""
        words: list[Word] = [self.name(item["entity_path"], "entity_path")]
        if item["entity_path"] is not None or item["key"] is not None:
            words.extend((("/", ""), self.name(item["key"], "key")))
        return words if item["version"] is None else [*words, (f" v{item['version']}", "")]


def text_of(answer: Answer, name: str) -> Word | None:
    """The value of a key of the answer itself as words, or why it is not there; None where there never was one."""
    withheld = next((one for one in answer["withheld"] if one["path"] == name), None)
    if withheld is not None:
        return withheld, ""
    return None if answer[name] is None else (_short(answer[name]), "altered" if is_marked(answer, name) else "")


def is_marked(answer: Answer, path: str) -> bool:
    """Whether what an answer has at `path` is, lies in or holds a text that is not what was recorded."""
    within = (f"{path}.", f"{path}[")
    marked = (one["path"] for one in answer["altered"] if one["path"])
    return any(one == path or one.startswith(within) or path.startswith((f"{one}.", f"{one}[")) for one in marked)


def line_texts(answer: Answer) -> Iterator[tuple[str, list[Line]]]:
    """The blocks that are not empty: Knew, Consulted, Decided, Happened; their lines in the order of the steps.

    An error is said on the line of its step; it has a line of its own only where its step has none. Outcomes of other
    records follow in the order of time; what one of them changed stands below it.
    """
    errors = {item["step"]: (place, item) for place, item in enumerate(answer["error_events"])}
    for title, kinds in _BLOCKS.items():
        lines: list[Line] = []
        for key, words in kinds.items():
            for place, item in _in_time(answer, key):
                step = _step(answer, key, item)
                error = errors.pop(step, None) if step is not None else None
                said = [*words(_Words(answer, key, place), item), *_unfinished(item)]
                lines.append(Line(step, said if error is None else [*said, *_failed(answer, *error)]))
                if step is None:
                    lines += _late_changes(answer, place, item)
        if title == "Happened":
            lines += [Line(step, _error(answer, *error)) for step, error in errors.items()]
        if lines:
            yield title, sorted(lines, key=lambda line: (line.step is None, line.step or 0))


def _in_time(answer: Answer, key: str) -> Sequence[tuple[int, Answer]]:
    """The items of a key with their places, in the order of time: the answer has the newest outcome first."""
    found: Any = answer
    for name in key.split("."):
        found = found[name]
    placed = list(enumerate(cast("Sequence[Answer]", found)))
    return placed[::-1] if key == "outcomes" else placed


def _step(answer: Answer, key: str, item: Answer) -> int | None:
    foreign = key == "outcomes" and item["record_id"] != answer["record_id"]
    return None if foreign else item["step"]


def _causal(words: _Words, item: Answer) -> list[Word]:
    line = words.entry(item)
    if item["confidence"] is not None:
        line.append((f", confidence {item['confidence']:.4g}", ""))
    line += words.after(", by ", item["written_by"], "written_by")
    return line + words.after(": ", item["value"], "value")


def _query(words: _Words, item: Answer) -> list[Word]:
    asked = {key: value for key, value in members(item["parameters"]).items() if value is not None}
    line: list[Word] = [(str(item["operation"]), "name")]
    text = asked.pop("query", None)
    line += words.after(" ", text, "parameters.query")
    if asked:
        line.append((f" {_short(asked)}", ""))
    count = item["result_count"]
    found = "1 result" if count == 1 else f"{'unknown' if count is None else count} results"
    line.append((f" → {found}{_took(item['duration_ms'])}", ""))
    named = [one["document_id"] for one in items(item["results"]) if one.get("document_id")]
    more = ", …" if len(named) > DOCUMENTS else ""
    return [*line, (f": {', '.join(named[:DOCUMENTS])}{more}", "")] if named else line


def _interaction(words: _Words, item: Answer) -> list[Word]:
    verb = "learned from " if item["direction"] == "read_from" else f"{item['direction']} "
    return [(verb, ""), words.name(item["other_agent_id"], "other_agent_id"), (": ", ""), *words.entry(item)]


def _context(words: _Words, item: Answer) -> list[Word]:
    name = context_name({"label": item["label"], "source_name": item["source"]})
    return [words.name(name, "label"), *words.after(": ", item["summary"], "summary")]


def _tool(words: _Words, item: Answer) -> list[Word]:
    line: list[Word] = [("tool ", ""), words.name(item["tool_name"], "tool_name")]
    line += words.after(" ", item["arguments"], "arguments")
    line += words.after(" → ", item["result_summary"], "result_summary")
    line.append((_took(item["duration_ms"]), ""))
    unexplained = item["success"] is False and item.get("step_status") != "error"
    return [*line, (", ", ""), ("failed", "state")] if unexplained else line


def _model(words: _Words, item: Answer) -> list[Word]:
    line: list[Word] = [("model ", ""), words.name(item["model"], "model")]
    tokens = [f"{item[key]} {said}" for key, said in _TOKENS if item[key] or (item[key] == 0 and key != _WRITTEN)]
    tokens += [f"${item['cost_usd']:.6f}".rstrip("0")] if item["cost_usd"] is not None else []
    line.append((": " + ", ".join(tokens) if tokens else "", ""))
    line.append((_took(item["latency_ms"]), ""))
    if item["finish_reason"]:
        line.append((f", {item['finish_reason']}", ""))
    if item["inputs"]:
        line.append((f", given {', '.join(_source(words, one) for one in item['inputs'])}", ""))
    return line


def _source(words: _Words, place: Answer) -> str:
    """A step as other lines name it; one of another record with the end of its id."""
    other = place["record_id"] != words.record_id
    return f"{place['step']} of …{place['record_id'][-8:]}" if other else str(place["step"])


def _write(words: _Words, item: Answer) -> list[Word]:
    line: list[Word] = [("wrote ", ""), *words.entry(item)]
    if item["confidence"] is not None:
        line.append((f", confidence {item['confidence']:.4g}", ""))
    return line + words.after(": ", item["value"], "value")


def _stated(words: _Words, item: Answer) -> list[Word]:
    line: list[Word] = [("decided", "name"), *words.after(": ", item["summary"], "summary")]
    for place, other in enumerate(items(item["alternatives"])):
        line += words.after("; not: ", other, f"alternatives[{place}]")
    for place, given in enumerate(items(item["inputs"])):
        line += words.after("; on: " if place == 0 else ", ", given, f"inputs[{place}]")
    return line


def _outcome(words: _Words, item: Answer) -> list[Word]:
    named = (NO_REF, "") if item["outcome_ref"] == "" else words.name(item["outcome_ref"], "outcome_ref")
    line: list[Word] = [("outcome ", ""), named, (" ", "")]
    line.append((item["outcome_type"] or "unknown", "state"))
    line += words.after(": ", item["decision_summary"], "decision_summary")
    when = (item["recorded_at"] or "")[:19].replace("T", " ")
    line += words.after(", from ", item["source"], "source")
    return [*line, (f" ({when}, record …{item['record_id'][-8:]})", "")]


def _change(words: _Words, item: Answer) -> list[Word]:
    line = words.entry({**item, "version": None})
    before, after = ("unknown" if item[key] is None else f"{item[key]:.4g}" for key in ("before", "after"))
    line.append((f" confidence {before} → {after}", ""))
    return [*line, (" ", ""), (item["direction"], "state")] if item["direction"] else line


def _late_changes(answer: Answer, place: int, item: Answer) -> list[Line]:
    """What an outcome of another record changed; this record's own changes are steps of it."""
    key = f"outcomes[{place}].confidence_changes"
    return [
        Line(None, [("  ", ""), *_change(_Words(answer, key, at), change)])
        for at, change in enumerate(item["confidence_changes"])
    ]


def _unfinished(item: Answer) -> list[Word]:
    """That a step never ended, as where its process died, or that a stream was not read to its end."""
    if item.get("step_status") == "incomplete":
        return [(", ", ""), ("did not end", "state")]
    return [(", ", ""), ("left early", "state")] if item.get("stream_exit") in _LEFT else []


def _failed(answer: Answer, place: int, item: Answer) -> list[Word]:
    return [(", ", ""), ("failed", "state"), *_cause(answer, place, item)]


def _error(answer: Answer, place: int, item: Answer) -> list[Word]:
    step = "" if item["kind"] == Kind.ERROR else f" in {item['kind']}"
    return [("error", "state"), (step, ""), *_cause(answer, place, item)]


def _cause(answer: Answer, place: int, item: Answer) -> list[Word]:
    cause: list[Word] = [(f": {item['error_type'] or 'unknown type'}", "")]
    return cause + _Words(answer, "error_events", place).after(": ", item["message"], "message")


_BLOCKS: Mapping[str, Mapping[str, Callable[[_Words, Answer], list[Word]]]] = {
    "Knew": {"causal_entries": _causal, "query_events": _query, "agent_interactions": _interaction},
    "Consulted": {"external_contexts": _context, "tool_calls": _tool, "llm_calls": _model},
    "Decided": {"write_events": _write, "decisions": _stated},
    "Happened": {"outcomes": _outcome, "state_diff.confidence_changes": _change},
}


def _is_empty(words: str | Answer) -> bool:
    """Whether a text is empty, or is not kept and was empty. Of one that was erased, that it was is told."""
    return words["reason"] == "policy" and words["bytes"] == 0 if isinstance(words, Mapping) else not words


def _took(duration_ms: float | None) -> str:
    if duration_ms is None:
        return ""
    return f", {duration_ms / 1000:.2f} s" if duration_ms >= 1000 else f", {duration_ms:.3g} ms"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"

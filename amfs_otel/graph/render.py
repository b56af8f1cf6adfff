"""The answers for people: short, coloured on a terminal, plain in a pipe.

Each function turns an answer of `Reader` into something that rich prints. Content comes from agents and from whoever
they talked to, so control characters never reach the terminal, and nothing is read as markup. A text that was withheld
is said to be so where it would stand, with a mark; the note of that mark, at the end, gives the rule and the setting
that keeps such a text from now on.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from amfs_otel.graph.lines import Line, line_texts
from amfs_otel.graph.texts import members
from amfs_otel.graph.tree import short_session, tree_lines

Answer = Mapping[str, Any]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TITLES = ("read by", "relied on by")
_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GOOD = ("success", "raised", "complete", "ok")
_BAD = ("failure", "lowered", "discredited", "error", "failed", "interrupted")


def list_table(rows: Sequence[Answer]) -> Table | Text:
    """The rows of `Reader.list` as a table; the record's id is shown by its last 8 digits."""
    if not rows:
        return Text("no decision traces")
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in ("record", "agent", "session", "outcome", "started", "steps", "status", "#"):
        table.add_column(title, justify="right" if title in ("steps", "#") else "left")
    for row in rows:
        place = row["sequence_number"]
        table.add_row(
            row["record_id"][-8:],
            _clean(row["agent_id"] or "(erased)"),
            _clean(short_session(row["session_id"])),
            _outcome(row["outcome_ref"], row["outcome"]),
            _clean((row["started_at"] or "")[:19].replace("T", " ")),
            str(row["events"]),
            _status(row["status"], row["continues"]),
            "not sealed" if place is None else str(place),
        )
    return table


def tree_text(answer: Answer) -> Text:
    """The tree of `Reader.tree`, line for line as the seed draws it."""
    text = Text()
    for place, line in enumerate(tree_lines(answer)):
        drawn, words = _split(_clean(line))
        text.append(drawn, "dim")
        text.append_text(_coloured(words, "bold" if place == 0 or words.startswith(_TITLES) else ""))
        text.append("\n")
    text.rstrip()
    return text


def explain_text(answer: Answer) -> Text:
    """The explanation of `Reader.explain` in the seed's four blocks; each line begins with the number of its step."""
    text, notes = Text(), _Notes()
    for line in _heading(answer):
        text.append_text(line).append("\n")
    for title, lines in line_texts(answer):
        text.append(f"\n{title}\n", "bold cyan")
        for line in lines:
            text.append_text(_line(line, notes)).append("\n")
    for line in [*_footing(answer), *notes.lines()]:
        text.append_text(line).append("\n")
    text.rstrip()
    return text


def show_text(answer: Answer) -> Text:
    """The record of `Reader.show`: its place, then all events with all their fields."""
    text, notes = Text(), _Notes()
    for key in ("record_id", "kind", "trace_id", "captured_at", "sequence_number", "signing_key_id"):
        text.append(f"{key:<16}", "bold").append(_clean(str(answer[key] if answer[key] is not None else "—")) + "\n")
    for words in _joined(answer):
        text.append(f"{words}\n")
    withheld = {one["path"]: one for one in answer["withheld"]}
    for key, value in answer["facts"].items():
        text.append(f"{key:<16}", "bold").append_text(_field(value, f"facts.{key}", withheld, notes)).append("\n")
    for place, event in enumerate(answer["events"]):
        title = f"{event['step']:>4}  {event['kind']}"
        took = "" if event["duration_ms"] is None else f", {event['duration_ms']:g} ms"
        text.append(_clean(f"\n{title}"), "bold cyan").append(_clean(f"  {event['started_at'] or '—'}{took}  "), "dim")
        text.append_text(_coloured(event["status"])).append("\n")
        hidden = ("step", "kind", "started_at", "duration_ms", "status", "event_id", "parent", "span_id", "step_status")
        for key, value in event.items():
            if key not in hidden:
                field = _field(value, f"events[{place}].{key}", withheld, notes)
                text.append(f"      {key}: ", "dim").append_text(field).append("\n")
    for line in notes.lines():
        text.append_text(line).append("\n")
    text.rstrip()
    return text


class _Notes:
    """What stands in place of texts that are not there, and the notes that their marks refer to, one per rule."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str | None], str] = {}

    def in_place(self, one: Answer) -> str:
        """``[30 bytes not kept¹]`` or ``[30 bytes erased by record …4d5e6f70]``."""
        size = f"{one['bytes']} bytes " if one["bytes"] is not None else ""
        if one["reason"] == "erased":
            by = f" by record …{one['erased_by'][-8:]}" if one["erased_by"] else ""
            return f"[{size}erased{by}]"
        mark = self._marks.setdefault((one["rule"], one["setting"]), _mark(len(self._marks) + 1))
        return f"[{size}not kept{mark}]"

    def lines(self) -> Iterator[Text]:
        """The notes, after an empty line."""
        before = "\n"
        for (rule, setting), mark in self._marks.items():
            keep = f"; {setting} keeps them from now on" if setting else ""
            yield Text(_clean(f"{before}{mark} {rule}{keep}"), "yellow")
            before = ""


def _mark(number: int) -> str:
    return str(number).translate(_DIGITS)


def _heading(answer: Answer) -> Iterator[Text]:
    newest = answer["outcomes"][0]["outcome_type"] if answer["outcomes"] else None
    record = f"record …{answer['record_id'][-8:]}"
    head = Text(_clean(answer["outcome_ref"] or record), "bold")
    if newest is not None:
        head.append("  ").append_text(_coloured(newest))
    yield head
    who = f"{answer['agent_id'] or '(name erased)'} ({short_session(answer['session_id'])})"
    took = answer["session_duration_ms"]
    times = f"{(answer['session_started_at'] or '')[:19].replace('T', ' ')}, {took / 1000:.3g} s" if took else ""
    status, closed_by = answer["status"], answer["closed_by"]
    state = str(status) if status == closed_by else f"{status}, closed by {closed_by}"
    yield Text(_clean(" · ".join(part for part in (who, times, state) if part)))
    place = answer["sequence_number"]
    sealed = "not sealed yet" if place is None else f"entry {place} of the log"
    trace = f"trace …{answer['trace_id'][-8:]}" if answer["trace_id"] else ""
    known = (record if answer["outcome_ref"] else "", sealed, trace, *_joined(answer))
    yield Text(" · ".join(part for part in known if part), "dim")
    if answer["decision_summary"]:
        yield Text(_clean(str(answer["decision_summary"])), "italic")


def _joined(answer: Answer) -> Iterator[str]:
    """Which traces it continues and is continued by."""
    if answer["continues"]:
        yield f"continues …{answer['continues'][-8:]}"
    for later in answer["continued_by"]:
        yield f"continued by …{later[-8:]}"


def _line(line: Line, notes: _Notes) -> Text:
    number = f"{line.step:>4}  " if line.step is not None else "      "
    text = Text().append(number, "dim")
    for words, kind in line.words:
        if isinstance(words, Mapping):
            text.append(_clean(notes.in_place(words)), "yellow")
        elif kind == "state":
            text.append_text(_coloured(words))
        else:
            text.append(_clean(words), "bold" if kind == "name" else "")
    return text


def _footing(answer: Answer) -> Iterator[Text]:
    coverage = answer["coverage"]
    dropped = [f"{count} {cause}" for cause, count in members(coverage.get("dropped")).items() if count]
    if dropped:
        said = ", ".join(dropped)
        yield Text(_clean(f"\nnot captured: {said}"), "yellow")
    texts = coverage.get("kept_message_texts")
    if texts:
        yield Text(f"\nmessage texts kept: {texts}; they are in: amfs-otel show {answer['record_id'][-8:]}", "dim")
    if answer["other_traces"]:
        older = ", ".join(f"…{one[-8:]}" for one in answer["other_traces"][:5])
        yield Text(f"\nolder traces with this ref: {older}", "dim")


def _field(value: Any, path: str, withheld: Mapping[str, Answer], notes: _Notes) -> Text:
    """A value on one line; pieces of it that were withheld are said after it."""
    own = withheld.get(path)
    if own is not None:
        return Text(_clean(notes.in_place(own)), "yellow")
    text = Text(_clean(value if isinstance(value, str) else _compact(value)))
    for inner, one in withheld.items():
        if inner.startswith((f"{path}.", f"{path}[")):
            text.append(f" {inner[len(path) :].lstrip('.')}: ", "dim").append(_clean(notes.in_place(one)), "yellow")
    return text


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _outcome(ref: str | None, outcome_type: str | None) -> Text:
    if ref is None and outcome_type is None:
        return Text("—", "dim")
    return Text(_clean(ref or "(erased)")).append(" ").append_text(_coloured(outcome_type or ""))


def _coloured(words: str | None, style: str = "") -> Text:
    text = Text("—" if words is None else _clean(words), style)
    for word in _GOOD:
        text.highlight_regex(rf"\b{word}\b", "green")
    text.highlight_regex(rf"\b(?:\w+_)?(?:{'|'.join(_BAD)})\b", "red")
    return text


def _status(status: str | None, continues: str | None) -> Text:
    text = _coloured(status)
    return text.append(f", continues …{continues[-8:]}") if continues else text


def _split(line: str) -> tuple[str, str]:
    """A tree line's drawn part and its words."""
    words = line.lstrip(" │├└─")
    return line[: len(line) - len(words)], words


def _clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)

"""The answers for people: short, coloured on a terminal, plain in a pipe.

Each function turns an answer of `Reader` into something that rich prints. Content comes from agents and from whoever
they talked to, so control characters never reach the terminal, and nothing is read as markup. A text that was withheld
is said to be so where it would stand, with a mark; the note of that mark, at the end, gives the rule and the setting
that keeps such a text from now on. A text that is not what was recorded is marked, too. A line that a terminal wraps
goes on deeper than it began, and so does a text of several lines: nothing that an agent wrote stands where a step
begins.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from amfs_otel.graph.lines import Line, Word, is_marked, line_texts, text_of
from amfs_otel.graph.texts import members, shown_ref
from amfs_otel.graph.tree import short_session, tree_lines

Answer = Mapping[str, Any]

NARROWEST = 20
"""Columns that a text has at least, however deep its indent."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ALTERED = " [altered]"
_TITLES = ("read by", "relied on by")
_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GOOD = ("success", "raised", "complete", "ok")
_OF_THE_TITLE = frozenset(
    ("step", "kind", "started_at", "duration_ms", "status", "event_id", "parent", "span_id", "step_status")
)
_BAD = ("failure", "lowered", "discredited", "error", "failed", "interrupted", "did not end", "left early")


@dataclass(frozen=True, slots=True)
class Hanging:
    """A text with a hanging indent, drawn as wide as the console is.

    Attributes:
        first: What its first line begins with.
        text: The text.
        rest: What its other lines begin with.
    """

    first: Text
    text: Text
    rest: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines; rich's protocol."""
        width = max(NARROWEST, options.max_width - len(self.rest))
        lines = self.text.wrap(console, width, no_wrap=options.no_wrap, overflow=options.overflow)
        for place, line in enumerate(lines):
            yield Text.assemble(self.first if place == 0 else (self.rest, "dim"), line)


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


def tree_text(answer: Answer) -> Group:
    """The tree of `Reader.tree`, line for line as the seed draws it."""
    return Group(*(_tree_line(_clean(line), first=place == 0) for place, line in enumerate(tree_lines(answer))))


def _tree_line(line: str, *, first: bool) -> Hanging:
    words = line.lstrip(" │├└─")
    drawn = line[: len(line) - len(words)]
    title = "bold" if first or words.startswith(_TITLES) else ""
    return Hanging(
        Text(drawn, "dim"), _coloured(words, title), drawn.replace("├──", "│  ").replace("└──", "   ") + "  "
    )


def explain_text(answer: Answer) -> Group:
    """The explanation of `Reader.explain` in the seed's four blocks; each line begins with the number of its step."""
    notes = _Notes(answer)
    lines = [Hanging(Text(), line, "  ") for line in _heading(answer, notes)]
    for title, block in line_texts(answer):
        lines += [_line_of(), _line_of(title, "bold cyan")]
        lines += [_step_line(line, notes) for line in block]
    return Group(*lines, *_footing(answer), *notes.lines())


def show_text(answer: Answer) -> Group:
    """The record of `Reader.show`: its place, then all events with all their fields."""
    notes = _Notes(answer)
    withheld = {one["path"]: one for one in answer["withheld"]}
    lines = [
        _fact(key, Text(_clean(str(answer[key] if answer[key] is not None else "—"))))
        for key in ("record_id", "kind", "trace_id", "captured_at", "sequence_number", "signing_key_id")
    ]
    lines += [_line_of(words) for words in _joined(answer)]
    for key, value in answer["facts"].items():
        lines.append(_fact(key, _field(value, f"facts.{key}", withheld, notes)))
    for place, event in enumerate(answer["events"]):
        title = Text(_clean(f"{event['step']:>4}  {event['kind']}"), "bold cyan")
        took = "" if event["duration_ms"] is None else f", {event['duration_ms']:g} ms"
        title.append(_clean(f"  {event['started_at'] or '—'}{took}  "), "dim")
        lines += [_line_of(), Hanging(title, _coloured(event["status"]), "        ")]
        for key, value in event.items():
            if key not in _OF_THE_TITLE:
                field = (
                    Text()
                    .append(f"{key}: ", "dim")
                    .append_text(_field(value, f"events[{place}].{key}", withheld, notes))
                )
                lines.append(Hanging(Text("      "), field, "        "))
    return Group(*lines, *notes.lines())


def _line_of(words: str = "", style: str = "") -> Hanging:
    return Hanging(Text(), Text(words, style), "  ")


def _fact(key: str, value: Text) -> Hanging:
    return Hanging(Text(f"{key:<16}", "bold"), value, " " * 16)


class _Notes:
    """What stands in place of texts that are not there, and the notes that their marks refer to, one per rule.

    Args:
        answer: What is drawn; of it, what is not as it was recorded.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._marks: dict[tuple[str, str | None], str] = {}

    def in_place(self, one: Answer) -> str:
        """``[30 bytes not kept¹]`` or ``[30 bytes erased by record …4d5e6f70]``; nothing was lost of an empty text."""
        if one["reason"] == "policy" and one["bytes"] == 0:
            return "[empty]"
        size = f"{one['bytes']} bytes " if one["bytes"] is not None else ""
        if one["reason"] == "erased":
            by = f" by record …{one['erased_by'][-8:]}" if one["erased_by"] else ""
            return f"[{size}erased{by}]"
        mark = self._marks.setdefault((one["rule"], one["setting"]), _mark(len(self._marks) + 1))
        return f"[{size}not kept{mark}]"

    def if_altered(self, path: str) -> Text:
        """The mark to put after what stands at `path`, empty where it is what was recorded."""
        return Text(_ALTERED if is_marked(self._answer, path) else "", "bold red")

    def lines(self) -> Iterator[Hanging]:
        """The notes, after an empty line."""
        if self._answer["altered"]:
            yield _line_of()
            yield _line_of(_clean(_altered_note(self._answer["altered"])), "bold red")
        if self._marks:
            yield _line_of()
        for (rule, setting), mark in self._marks.items():
            keep = f"; {setting} keeps them from now on" if setting else ""
            yield _line_of(_clean(f"{mark} {rule}{keep}"), "yellow")


def _altered_note(altered: Sequence[Answer]) -> str:
    whole = sorted({one["record_id"][-8:] for one in altered if not one["path"]})
    what = [f"record{'s' if len(whole) > 1 else ''} …{', …'.join(whole)}"] if whole else []
    what += [f"what is marked{_ALTERED}"] if any(one["path"] for one in altered) else []
    return f"not as recorded: {' and '.join(what)}; what was changed says: amfs-otel verify"


def _mark(number: int) -> str:
    return str(number).translate(_DIGITS)


def _heading(answer: Answer, notes: _Notes) -> Iterator[Text]:
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
        summary = Text(_clean(str(answer["decision_summary"])), "italic")
        yield summary.append_text(notes.if_altered("decision_summary"))
    attributes = text_of(answer, "attributes")
    if attributes is not None:
        yield Text("attributes: ", "dim").append_text(_words((attributes,), notes))


def _joined(answer: Answer) -> Iterator[str]:
    """Which traces it continues and is continued by."""
    if answer["continues"]:
        yield f"continues …{answer['continues'][-8:]}"
    for later in answer["continued_by"]:
        yield f"continued by …{later[-8:]}"


def _step_line(line: Line, notes: _Notes) -> Hanging:
    number = f"{line.step:>4}  " if line.step is not None else "      "
    return Hanging(Text(number, "dim"), _words(line.words, notes), "        ")


def _words(line: Sequence[Word], notes: _Notes) -> Text:
    text = Text()
    for words, kind in line:
        if isinstance(words, Mapping):
            text.append(_clean(notes.in_place(words)), "yellow")
        elif kind == "state":
            text.append_text(_coloured(words))
        else:
            text.append(_clean(words), "bold" if kind == "name" else "")
            text.append(_ALTERED if kind == "altered" else "", "bold red")
    return text


def _footing(answer: Answer) -> Iterator[Hanging]:
    coverage = answer["coverage"]
    dropped = [f"{count} {cause}" for cause, count in members(coverage.get("dropped")).items() if count]
    if dropped:
        yield _line_of()
        yield _line_of(_clean(f"not captured: {', '.join(dropped)}"), "yellow")
    texts = coverage.get("kept_message_texts")
    if texts:
        yield _line_of()
        yield _line_of(f"message texts kept: {texts}; they are in: amfs-otel show {answer['record_id'][-8:]}", "dim")
    if answer["other_traces"]:
        older = ", ".join(f"…{one[-8:]}" for one in answer["other_traces"][:5])
        yield _line_of()
        yield _line_of(f"older traces with this ref: {older}", "dim")


def _field(value: Any, path: str, withheld: Mapping[str, Answer], notes: _Notes) -> Text:
    """A value on one line; pieces of it that were withheld are said after it."""
    own = withheld.get(path)
    if own is not None:
        return Text(_clean(notes.in_place(own)), "yellow")
    text = Text(_clean(value if isinstance(value, str) else _compact(value))).append_text(notes.if_altered(path))
    for inner, one in withheld.items():
        if inner.startswith((f"{path}.", f"{path}[")):
            text.append(f" {inner[len(path) :].lstrip('.')}: ", "dim").append(_clean(notes.in_place(one)), "yellow")
    return text


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _outcome(ref: str | None, outcome_type: str | None) -> Text:
    if ref is None and outcome_type is None:
        return Text("—", "dim")
    return Text(_clean(shown_ref(ref, "(erased)"))).append(" ").append_text(_coloured(outcome_type or ""))


def _coloured(words: str | None, style: str = "") -> Text:
    text = Text("—" if words is None else _clean(words), style)
    for word in _GOOD:
        text.highlight_regex(rf"\b{word}\b", "green")
    text.highlight_regex(rf"\b(?:\w+_)?(?:{'|'.join(_BAD)})\b", "red")
    return text


def _status(status: str | None, continues: str | None) -> Text:
    text = _coloured(status)
    return text.append(f", continues …{continues[-8:]}") if continues else text


def _clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)

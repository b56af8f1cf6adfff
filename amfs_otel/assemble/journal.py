"""What the journal holds: each change of a window as one JSON frame, so that a dead process's windows can be finished.

A frame's id is the record id of its window. Texts are already masked and the policy applied: a withheld text has its
salt, commitment, length and digest, and no bytes.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from amfs_otel.assemble.prepare import PreparedEvent
from amfs_otel.chain.skeleton import PreparedText
from amfs_otel.errors import FormatError
from amfs_otel.model import (
    ClosedBy,
    EventsMoved,
    RecordKind,
    WindowClosed,
    WindowDropped,
    WindowFacts,
    WindowOpened,
    WindowRenamed,
)


@dataclass(slots=True)
class EventPrepared:
    """An event, opened or closed, prepared for the window of `record_id`."""

    record_id: str
    event: PreparedEvent


@dataclass(slots=True)
class ProcessBegan:
    """First frame of each journal segment: what an adopter must know about the process that wrote it.

    Attributes:
        origin: The origin facts of its traces.
        log: Name of the log that it records for.
        content: The ledger policy that was applied.
        record_id: Constant: this frame is about no window.
    """

    origin: dict[str, Any]
    log: str
    content: str
    record_id: str = "00000000-0000-0000-0000-000000000000"


JournalItem = ProcessBegan | WindowOpened | WindowClosed | WindowRenamed | WindowDropped | EventsMoved | EventPrepared


_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def frame_id(record_id: str) -> bytes:
    """The 16 bytes of a record id."""
    return bytes.fromhex(record_id.replace("-", ""))


def record_id_of(item: JournalItem) -> str:
    """The window that `item` is about."""
    if isinstance(item, WindowOpened):
        return item.facts.record_id
    return item.target if isinstance(item, EventsMoved) else item.record_id


def encoded(item: JournalItem) -> bytes:
    """The bytes of a frame."""
    content: dict[str, Any]
    if isinstance(item, EventPrepared):
        event = item.event
        content = {
            "t": "EventPrepared",
            "record": item.record_id,
            "facts": event.facts,
            "open": event.is_open,
            "synthetic": event.synthetic,
            "texts": [_text(text) for text in event.texts],
        }
    else:
        content = {"t": type(item).__name__, **_members(item.facts if isinstance(item, WindowOpened) else item)}
    return _json(content).encode()


def _members(item: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are: they are written at once, so that nothing need be copied."""
    return {name: getattr(item, name) for name in item.__slots__}


def decoded(data: bytes) -> JournalItem:
    """The item of a frame.

    Raises:
        FormatError: The frame is not one of ours.
    """
    try:
        content: dict[str, Any] = json.loads(data)
        kind = content.pop("t")
        if kind == "EventPrepared":
            facts = content["facts"]
            texts = [_text_from(text) for text in content["texts"]]
            event = PreparedEvent(facts["id"], facts["seq"], facts, texts, content["open"], content["synthetic"])
            return EventPrepared(content["record"], event)
        if kind == "WindowOpened":
            content["record_kind"] = RecordKind(content["record_kind"])
            content["refs"] = tuple((rel, record) for rel, record in content["refs"])
            return WindowOpened(WindowFacts(**content))
        if kind == "WindowClosed":
            content["closed_by"] = ClosedBy(content["closed_by"])
            return WindowClosed(**content)
        return _PLAIN[kind](**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError("a journal frame cannot be read", where="journal", got=type(error).__name__) from None


_PLAIN: dict[str, Any] = {
    "ProcessBegan": ProcessBegan,
    "WindowRenamed": WindowRenamed,
    "WindowDropped": WindowDropped,
    "EventsMoved": EventsMoved,
}


def _text(text: PreparedText) -> dict[str, Any]:
    return {
        "k": text.klass,
        "m": text.media,
        "n": text.length_bytes,
        "s": _b64(text.salt),
        "c": _b64(text.commitment),
        "b": None if text.data is None else _b64(text.data),
        "d": None if text.digest is None else _b64(text.digest),
    }


def _text_from(stored: dict[str, Any]) -> PreparedText:
    return PreparedText(
        stored["k"],
        stored["m"],
        stored["n"],
        base64.b64decode(stored["s"]),
        base64.b64decode(stored["c"]),
        None if stored["b"] is None else base64.b64decode(stored["b"]),
        None if stored["d"] is None else base64.b64decode(stored["d"]),
    )


def _b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")

"""Values of a record that may be withheld, and how an answer says so.

A `Text` is what stands in a document's facts where the skeleton points to a part: the value itself, or the reason why
it is not there. Answers are built with `Text` objects in place; `resolved` then replaces each by its value, or by null
and one item of ``withheld``. So no mapping has to think of withheld parts, and none can forget them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

from amfs_otel.chain.hashes import part_commitment
from amfs_otel.chain.parts import Part

Reason = Literal["policy", "erased"]

CLASS_WORDS = {"s": "skeleton", "i": "name", "d": "decision", "m": "message", "h": "digest"}
"""Part class letter → the content policy's word for it."""

NO_REF = "(no ref)"
"""Where an outcome's ref would stand and a library gave an empty one."""

_SCALARS = frozenset([str, int, float, bool, type(None)])
_SETTINGS = {"d": "AMFS_OTEL_LEDGER_CONTENT=decision", "m": "AMFS_OTEL_LEDGER_CONTENT=all"}


class Stored(NamedTuple):
    """Where a text that is there was read.

    Attributes:
        record_id: The record.
        part: Its part, with salt and bytes as they are stored.
    """

    record_id: str
    part: Part


@dataclass(frozen=True, slots=True)
class Text:
    """A value with a part of its own, or a name out of the erasable strings.

    Attributes:
        value: The text, or the parsed value of a JSON part; None where withheld.
        klass: Class letter of its part.
        reason: Why it is not here; None if it is.
        size: Length of the original in bytes, None where unknown.
        commitment: Hex of the part's salted commitment; None for names, which share one part.
        ledger: The content policy under which it was recorded.
        erased_by: Id of the erasure record, where known.
        stored: Where it was read; None where it is withheld, and for names.
    """

    value: Any
    klass: str
    reason: Reason | None = None
    size: int | None = None
    commitment: str | None = None
    ledger: str | None = None
    erased_by: str | None = None
    stored: Stored | None = field(default=None, repr=False, compare=False)

    @property
    def rule(self) -> str | None:
        """The policy rule that withheld it, in words; None unless policy did."""
        if self.reason != "policy":
            return None
        policy = f' under the policy "{self.ledger}"' if self.ledger else ""
        return f"{CLASS_WORDS.get(self.klass, 'such')} texts are not kept{policy}"

    @property
    def setting(self) -> str | None:
        """The setting that keeps such a text from now on; None unless policy withheld it."""
        return _SETTINGS.get(self.klass) if self.reason == "policy" else None


def is_altered(part: Part, commitment: bytes) -> bool:
    """Whether the bytes of a part that is there are not those that its record commits to (FORMAT 4.1)."""
    return part.data is not None and (part.salt is None or part_commitment(part.salt, part.data) != commitment)


def altered_item(path: str, record_id: str, part: int | None) -> dict[str, Any]:
    """An item of ``altered``: where in the answer (empty: anywhere), of which record, which part (None: the header)."""
    return {"path": path, "record_id": record_id, "part": part}


@dataclass(frozen=True, slots=True)
class Resolved:
    """A plain JSON value, the paths in it that were withheld, and those whose bytes are not what was recorded."""

    value: Any
    withheld: list[dict[str, Any]]
    altered: list[dict[str, Any]]


def resolved(tree: Any, path: str = "", *, checked: bool = False) -> Resolved:
    """Returns `tree` with every `Text` replaced by its value, or by None and an item of ``withheld``.

    Args:
        tree: Dicts, lists, tuples, scalars and `Text` objects; not changed.
        path: Path of `tree` itself, put before the paths found.
        checked: Look whether each text that is there is what its record commits to: an answer's texts are.
    """
    found = Resolved(None, [], [])
    return replace(found, value=_plain(tree, path, found, checked=checked))


def _plain(tree: Any, path: str, found: Resolved, *, checked: bool) -> Any:
    kind = cast("type[Any]", type(tree))
    if kind in _SCALARS:  # most of what an answer is made of
        return tree
    if kind is Text:
        if tree.reason is not None:
            found.withheld.append(_withheld_item(tree, path))
        elif checked and (one := tree.stored) is not None and is_altered(one.part, bytes.fromhex(tree.commitment)):
            found.altered.append(altered_item(path, one.record_id, one.part.number))
        return tree.value
    if issubclass(kind, Mapping):
        members = cast("Mapping[str, Any]", tree)
        return {
            key: _plain(item, f"{path}.{key}" if path else key, found, checked=checked) for key, item in members.items()
        }
    if issubclass(kind, list | tuple):
        items = cast("Sequence[Any]", tree)
        return [_plain(item, f"{path}[{place}]", found, checked=checked) for place, item in enumerate(items)]
    return tree


def _withheld_item(text: Text, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "reason": text.reason,
        "rule": text.rule,
        "setting": text.setting,
        "erased_by": text.erased_by,
        "bytes": text.size,
    }


def summarised(value: Any, limit: int) -> Any:
    """The beginning of a text for a summary: strings as they are, other values as JSON, cut to `limit` characters.

    A withheld `Text` stays as it is, so that the answer lists it.
    """
    if isinstance(value, Text):
        return replace(value, value=summarised(value.value, limit))
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: Any) -> Any:
    """The value behind `value`: itself, or what a `Text` holds (None where withheld)."""
    return value.value if isinstance(value, Text) else value


def word(value: Any) -> str | None:
    """The string behind `value`, None where it is withheld, absent or no string."""
    value = shown(value)
    return value if isinstance(value, str) else None


def shown_ref(ref: str | None, erased: str) -> str:
    """An outcome's ref, or `erased` where it is gone; an empty one, which a library may report, is no erasure."""
    return erased if ref is None else ref or NO_REF


def said(value: Any) -> Any:
    """`value` if it is a string or a `Text`, else None: for fields that answers show as strings."""
    return value if isinstance(value, str | Text) else None


def integer(value: Any) -> int | None:
    """`value` if it is a whole number, else None (a bool is none)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: Any) -> int | float | None:
    """`value` if it is a number, else None (a bool is none)."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def flag(value: Any) -> bool | None:
    """`value` if it is a bool, else None."""
    return value if isinstance(value, bool) else None


def items(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def members(value: Any) -> Mapping[str, Any]:
    """`value` if it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}

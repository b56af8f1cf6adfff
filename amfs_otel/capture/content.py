"""Content: snapshots on the caller's thread, masking and limits for what is kept.

The policy in one table (capture.md, "Content policy"):

========= ========================================== ============== ==========
class     examples                                   ledger default on spans
========= ========================================== ============== ==========
structure versions, counts, model and host names     yes            yes
name      agents, refs, paths, keys, labels, tools   yes            yes
decision  summaries, memory values, query texts      yes            no
message   prompts, completions, arguments, results   no             no
========= ========================================== ============== ==========

What is not kept leaves a salted commitment and its size. Secrets are masked in every class before anything is hashed,
written or exported.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MemberDescriptorType, SimpleNamespace
from typing import Any, cast

from amfs_otel import environment_variables as env
from amfs_otel import guard
from amfs_otel.capture.marks import RULES, is_marked, lowered_text
from amfs_otel.capture.plain import texts_of
from amfs_otel.chain.canonical import clean_text
from amfs_otel.model import FieldClass
from amfs_otel.settings import LedgerContent

MASKING_VERSION = 1
"""Stands in each skeleton: commitments and digests are over masked bytes."""

MASK = "[masked]"
NAME_CHARACTERS = 1024
REMEMBERED_NAMES = 1024
SNAPSHOT_DEPTH = 12
SNAPSHOT_ITEMS = 20_000
SPAN_TEXT_LIMIT = 1 << 20
"""Characters of one text on a span, where the user set no limit; what lies beyond is cut before it is masked."""

_ATOMS: frozenset[type] = frozenset({str, bytes, int, float, bool, type(None)})
_TEXT: frozenset[type] = frozenset({str})
_MODEL_MARKS = ("__pydantic_fields__", "__fields__", "__dataclass_fields__")


def snapshot(value: Any, depth: int = SNAPSHOT_DEPTH) -> Any:
    """Copies the structure of `value` (lists, tuples, dicts, the fields of models), sharing the leaves.

    Nothing is iterated that is not a list, tuple, set, dict or array; generators and unknown objects are kept by
    reference and never consumed. At most `SNAPSHOT_ITEMS` items are copied; deeper or larger parts are shared.
    """
    return value if type(value) in _ATOMS else _copied(value, depth, [SNAPSHOT_ITEMS])


def stop_sequences(value: Any) -> list[str] | None:
    """What a request says of where to stop, one text or several; `None` where it says nothing."""
    given = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
    return [text for text in given if type(text) is str] or None


def name(value: Any) -> str | None:
    """An identifier that the application gave, as a bounded text that is fit for spans; its own code is never run.

    `None` stays `None`; what is no string is named by its type.
    """
    if value is None:
        return None
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str and value.isascii() and len(value) <= NAME_CHARACTERS and "\0" not in value:
        return value
    if not issubclass(kind, str):
        return f"<{kind.__name__}>"
    return clean_text(str.__str__(value)[:NAME_CHARACTERS])[0]


def _copied(value: Any, depth: int, budget: list[int]) -> Any:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _ATOMS or depth <= 0:
        return value
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        items: list[Any] = value if kind is base else list(base.__iter__(value))
        budget[0] -= len(items)
        if budget[0] <= 0:
            return value
        # One pass in C: prompts are mostly lists and dicts of strings, embeddings' inputs lists of token numbers.
        if _ATOMS.issuperset(map(type, items)):
            return list(items)
        return [item if type(item) in _ATOMS else _copied(item, depth - 1, budget) for item in items]
    if issubclass(kind, dict):
        items_of: Callable[[Any], Any] = dict[Any, Any].items
        mapping: dict[Any, Any] = value if kind is dict else dict(items_of(value))
        budget[0] -= len(mapping)
        if budget[0] <= 0:
            return value
        if _ATOMS.issuperset(map(type, mapping.values())) or not _TEXT.issuperset(map(type, mapping)):
            # Building a dict with other keys would run their own __hash__ and __eq__; a copy does not.
            return mapping.copy()
        return {k: item if type(item) in _ATOMS else _copied(item, depth - 1, budget) for k, item in mapping.items()}
    if kind is set or kind is frozenset:
        return set(cast("set[Any]", value))
    fields = _model_fields(value)
    if fields is not None:
        return _copied(fields, depth, budget)
    ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
    return _array_copied(value, ndarray, depth, budget) if kind is ndarray else value


def _array_copied(value: Any, ndarray: Any, depth: int, budget: list[int]) -> Any:
    """A copy of an array of numpy's; a large one, of which only the shape is told, is shared.

    Never of a subclass: what one hides, as a masked array does, would show in the copy.
    """
    array = ndarray.view(value, ndarray)
    budget[0] -= max(array.size, array.nbytes // 8)
    if budget[0] <= 0:
        return value
    return _copied(array.tolist(), depth - 1, budget) if array.dtype.hasobject else array.copy()


@functools.lru_cache(256)
def _has_fields(kind: type[Any]) -> bool:
    return kind is SimpleNamespace or any(hasattr(kind, mark) for mark in _MODEL_MARKS)


@functools.lru_cache(256)
def _slots(kind: type[Any]) -> tuple[tuple[str, MemberDescriptorType], ...]:
    """The fields of a dataclass that are slots, those of its bases first."""
    fields = getattr(kind, "__dataclass_fields__", None)
    if type(fields) is not dict:
        return ()
    held = [(name, slot) for base in reversed(kind.__mro__) for name, slot in vars(base).items()]
    return tuple((name, slot) for name, slot in held if type(slot) is MemberDescriptorType and name in fields)


def _model_fields(value: Any) -> dict[str, Any] | None:
    """The fields of a pydantic model, dataclass or namespace, read from its `__dict__`, never through its own code.

    Those of a dataclass with slots are read from these, also where a base without slots gives it a `__dict__`, too.
    """
    kind = cast("type[Any]", type(value))
    if kind.__class__.__hash__ is not type.__hash__ or not _has_fields(kind):
        return None
    slots = _slots(kind)
    fields: dict[str, Any] = {}
    for name, slot in slots:
        with suppress(AttributeError):  # never set
            fields[name] = slot.__get__(value)
    try:
        fields.update(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        if not slots:
            return None
    extra = getattr(value, "__pydantic_extra__", None)
    return {**fields, **extra} if type(extra) is dict and extra else fields


def kept_in_ledger(field_class: FieldClass, content: LedgerContent) -> bool:
    """Whether the decision trace keeps a text of `field_class` under `content`."""
    if field_class is FieldClass.DECISION:
        return content is not LedgerContent.NONE
    if field_class is FieldClass.MESSAGE:
        return content is LedgerContent.ALL
    return True


_CARD_DIGITS = 13
_NO_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
_DIGITS = re.compile(r"[0-9](?:[ -]?[0-9]){12}")
_CARD = re.compile(r"(?<![0-9A-Za-z.-])(?:[0-9][ -]?){12,18}[0-9](?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class Masker:
    """Masks secrets in texts.

    Attributes:
        patterns: The user's own expressions, besides the built-in ones.
        functions: The user's own functions, text → text.
        blind: The user's own expressions could not be read. What they would have masked is not known, so every text is
            masked as a whole; names are not, for without them no decision could be found.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    functions: tuple[Callable[[str], str], ...] = ()
    blind: bool = False
    _known: dict[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    def identifier(self, text: str) -> str:
        """Masks keys and tokens; card numbers are left, they would damage numeric references. What recurs is fast."""
        known = self._known.get(text)
        if known is None:
            known = self._without_keys(text)
            if len(text) <= NAME_CHARACTERS:
                if len(self._known) >= REMEMBERED_NAMES:
                    self._known.clear()
                self._known[text] = known
        return known

    def _without_keys(self, text: str) -> str:
        masked, lowered = text, lowered_text(text)
        for marks, secret in RULES if is_marked(lowered) else ():
            if any(mark in lowered for mark in marks):
                masked = _replaced(secret, _without_secret, masked)
        for pattern in self.patterns:
            masked = pattern.sub(MASK, masked)
        for function in self.functions:
            made: Any = guard.run("masking", function, masked)
            # What a function that fails would have masked is not known.
            masked = made if type(made) is str else MASK
        return masked

    def text(self, text: str) -> str:
        """Masks keys, tokens and card numbers."""
        if self.blind:
            return MASK if text else text
        return _replaced(_CARD, _without_card, self._without_keys(text))

    def leaves(self, texts: str) -> bool:
        """Whether there is nothing to mask in `texts`, as `plain.texts_of` gives them. In doubt it says no."""
        if self.patterns or self.functions or self.blind:
            return False
        if is_marked(lowered_text(texts)):
            return False
        # Most texts have fewer digits than a card number, and to count them takes a twentieth of looking for a run.
        digits = texts.encode("utf-8", "surrogatepass").translate(None, _NO_DIGITS)
        return len(digits) < _CARD_DIGITS or _DIGITS.search(texts) is None

    def value(self, value: Any) -> Any:
        """Masks each string inside a normalised JSON value; a key that names a secret masks its whole value."""
        texts = texts_of(value)
        return value if texts is not None and self.leaves(texts) else self._masked(value)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._masked(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            return {self.text(k): MASK if _names_secret(k, v) else self._masked(v) for k, v in mapping.items()}
        return value


class SpanNames(dict[str, str]):
    """Names as spans show them: masked, bounded, and free of what no exporter can encode. What recurs is remembered.

    Args:
        masker: Masks secrets in them.
    """

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._masker = masker

    def __missing__(self, given: str) -> str:
        shown = self._masker.identifier(clean_text(cut_between_words(given, NAME_CHARACTERS))[0])
        if len(given) <= NAME_CHARACTERS:
            if len(self) >= REMEMBERED_NAMES:
                self.clear()
            self[given] = shown
        return shown


_SECRET_KEYS = re.compile(
    r"(?i)^(?:api[_-]?key|x-api-key|authorization|proxy-authorization|cookie|set-cookie|access[_-]?token"
    r"|refresh[_-]?token|auth[_-]?token|client[_-]?secret|secret[_-]?key|private[_-]?key|passw(?:or)?d|pwd)$"
)


def _names_secret(key: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and _SECRET_KEYS.match(key) is not None


def _without_secret(match: re.Match[str]) -> str:
    assigned = match.groupdict().get("assigned")
    return MASK if assigned is None else match.group(0)[: -len(assigned)] + MASK


def _without_card(match: re.Match[str]) -> str:
    digits = [int(c) for c in match.group(0) if c.isdigit()]
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return MASK if (sum(digits[::-2]) + sum(doubled)) % 10 == 0 else match.group(0)


_STRETCH = 16_384
_LONGEST = 4_096
_TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+/=-")


def cut_between_words(text: str, limit: int) -> str:
    """The beginning of `text`, at most `limit` characters, not ending inside a token, which could not be masked."""
    if len(text) <= limit:
        return text
    end = limit
    while end > max(0, limit - _LONGEST) and text[end - 1] in _TOKEN:
        end -= 1
    return text[:end] if end > max(0, limit - _LONGEST) else text[:limit]


def _replaced(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    """`pattern.sub`, in stretches for a long text: one call would keep all threads waiting until it is through."""
    if len(text) <= _STRETCH + _LONGEST:
        return pattern.sub(replace, text)
    pieces: list[str] = []
    done = at = 0
    while at < len(text):
        end = min(at + _STRETCH + _LONGEST, len(text))
        match = pattern.search(text, at, end)
        if match is None or match.start() >= at + _STRETCH:
            at += _STRETCH
            continue
        if match.end() == end:
            match = pattern.match(text, match.start()) or match
        pieces += (text[done : match.start()], replace(match))
        done = at = match.end()
    return "".join(pieces) + text[done:]


_functions: list[Callable[[str], str]] = []


def add_masking_function(function: Callable[[str], str]) -> None:
    """Adds a function text → text that every text passes before it is kept or exported."""
    _functions.append(function)


def masker_from_file(path: Path | None) -> Masker:
    """A masker with the expressions in `path`, one a line; an unusable line is reported once and left out.

    Where the file cannot be read, which is reported once, it masks every text.
    """
    if path is None:
        return Masker(functions=tuple(_functions))
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        guard.once(
            "mask_patterns",
            30,
            "amfs-otel: %s: %s cannot be read (%s); no text is kept, since what it would mask is not known. Correct it "
            "and start the program again.",
            env.AMFS_OTEL_MASK_PATTERNS,
            path,
            reason,
        )
        return Masker(functions=tuple(_functions), blind=True)
    return Masker(tuple(_compiled(path, lines)), tuple(_functions))


def _compiled(path: Path, lines: Iterable[str]) -> Iterable[re.Pattern[str]]:
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                yield re.compile(line)
            except (re.error, OverflowError, RecursionError) as error:
                reason = error.msg if isinstance(error, re.error) else type(error).__name__
                guard.once(f"mask:{number}", 30, "amfs-otel: %s line %d: %s; left out", path, number, reason)

"""Event → prepared event: masked, policy applied, JSON-able. Runs on the worker, before anything touches the disk.

A prepared event is what the journal holds and what a record's skeleton will hold: identifiers as `{"$n": text}`, free
texts as `{"$t": index}` into its texts. A text that the policy withholds ends here: only its salt, commitment, length
and keyed digest go on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from amfs_otel import guard
from amfs_otel.assemble.plain_json import canonical_if_plain
from amfs_otel.assemble.repeated import LONG, RepeatedItems
from amfs_otel.capture.content import Masker, cut_between_words, kept_in_ledger
from amfs_otel.chain.canonical import clean_text, jcs, normalised
from amfs_otel.chain.jcs import MAX_SAFE_INTEGER
from amfs_otel.chain.skeleton import PreparedText, prepare_text
from amfs_otel.model import FIELDS, Deferred, Event, FieldClass, WindowFacts
from amfs_otel.settings import LedgerContent

TEXT_LIMIT_BYTES = 1 << 20
"""A longer text keeps its beginning; what is missing is said in its place, with the length of the whole."""

NOTE_BYTES = 64
"""The note may go beyond the limit by that much."""

UNREADABLE = "<unreadable>"
"""Stands for a value whose reading failed; the event is kept."""

NAME_LIMIT = 1024
STRUCTURE_LIMIT = 256
REMEMBERED_STRUCTURES = 1024

_DIGESTED = frozenset({"system_instructions", "tool_definitions", "arguments", "input_messages", "query"})
"""Fields whose equality is useful without their content."""

_TEXT_LISTS = frozenset({"alternatives"})
"""Fields that are a list of texts, one part each."""

_REPEATED = frozenset({"input_messages", "system_instructions", "tool_definitions"})
"""Fields of a request that hold what the one before it held, and little more."""

_STRUCTURE, _NAME = FieldClass.STRUCTURE, FieldClass.NAME  # a member is slow to find in its enumeration


@dataclass(slots=True)
class PreparedEvent:
    """An event as journal and record hold it.

    Attributes:
        id: 16 hex digits.
        seq: Its order inside the process.
        facts: JSON object of the event, texts and names replaced by references.
        texts: What the `$t` references mean.
        is_open: Whether the step had not ended.
        synthetic: Whether the assembler made it from messages; it goes before the event with the same `seq`.
    """

    id: str
    seq: int
    facts: dict[str, Any]
    texts: list[PreparedText] = field(default_factory=list[PreparedText])
    is_open: bool = False
    synthetic: bool = False

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return 400 + sum(len(text.data or b"") + 150 for text in self.texts)

    @property
    def text_bytes(self) -> int:
        """Length of its texts, of those that are withheld, too."""
        return sum(text.length_bytes for text in self.texts)


@dataclass(frozen=True, slots=True)
class Preparer:
    """Applies masking and policy.

    Attributes:
        content: Which texts are kept.
        masker: Masks secrets.
        digest_key: Key of the keyed digests, `None` without a writer key.
        before_long: Called before what may take long: a long text, or a value that must be normalised.
    """

    content: LedgerContent
    masker: Masker
    digest_key: bytes | None
    before_long: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    _structures: dict[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    _repeated: RepeatedItems = field(default_factory=RepeatedItems, compare=False, repr=False)

    def event(self, event: Event, opened: PreparedEvent | None = None, *, ended: bool) -> PreparedEvent:
        """Prepares `event`.

        Args:
            event: The event.
            opened: What was prepared while the step was open: its texts, with their salts, are taken over.
            ended: Whether its end has been reported, so that its result is final.
        """
        texts = list(opened.texts) if opened is not None else []
        facts = dict(opened.facts) if opened is not None else self._request(event, texts)
        facts["status"] = event.status if ended else "incomplete"
        if ended:
            facts["end_us"] = event.end_ns // 1000
            if event.error_type is not None:
                facts["error_type"] = self._structure(event.error_type)
            self._fields(event.result or {}, facts, texts)
        return PreparedEvent(facts["id"], event.seq, facts, texts, not ended)

    def _request(self, event: Event, texts: list[PreparedText]) -> dict[str, Any]:
        """What is known when a step starts."""
        facts: dict[str, Any] = {
            "id": f"{event.id:016x}",
            "kind": str(event.kind),
            "seq": event.seq,
            "start_us": event.start_ns // 1000,
            "source": event.source,
        }
        if event.parent_id:
            facts["parent"] = f"{event.parent_id:016x}"
        if event.trace_id:
            facts["trace"], facts["span"] = f"{event.trace_id:032x}", f"{event.span_id:016x}"
        if event.agent is not None:
            facts["agent"] = self.name(event.agent)
        if event.flags:
            facts["flags"] = event.flags
        self._fields(event.fields, facts, texts)
        return facts

    def _fields(self, fields: Mapping[str, Any], facts: dict[str, Any], texts: list[PreparedText]) -> None:
        """Most fields are counts, switches and short texts: they are taken here, where nothing can fail."""
        for key, value in fields.items():
            if value is None:
                continue
            field_class = FIELDS.get(key, _STRUCTURE)
            if field_class is _STRUCTURE and _is_plain_leaf(value):
                facts[key] = value
            elif field_class is _STRUCTURE and type(value) is str:
                facts[key] = self._structures.get(value) or self._structure(value)
            elif field_class is _NAME and type(value) is str:
                facts[key] = {"$n": self.name_text(value)}
            else:
                facts[key] = UNREADABLE
                guard.run("assemble", self._field, key, value, facts, texts)

    def _field(self, key: str, value: Any, facts: dict[str, Any], texts: list[PreparedText]) -> None:
        facts[key] = self.value(key, value, texts)

    def value(self, key: str, value: Any, texts: list[PreparedText]) -> Any:
        """The prepared form of field `key`; new texts are appended to `texts`."""
        field_class = FIELDS.get(key, FieldClass.STRUCTURE)
        if field_class is FieldClass.NAME:
            return self._names(key, value, texts)
        if field_class is FieldClass.STRUCTURE:
            return self._structure_of(value, texts)
        if key in _TEXT_LISTS and issubclass(type(value), (list, tuple)):
            return [self._text(key, field_class, item, texts) for item in cast("list[Any]", value)]
        return self._text(key, field_class, value, texts)

    def window(self, facts: WindowFacts) -> WindowFacts:
        """`facts` with its names masked and bounded."""
        return replace(
            facts,
            agent=self.name_text(facts.agent) or "",
            session_id=self.name_text(facts.session_id),
            claimed_session=self.name_text(facts.claimed_session),
        )

    def name(self, value: Any) -> dict[str, str] | None:
        """`name_text` as a reference."""
        text = self.name_text(value)
        return None if text is None else {"$n": text}

    def name_text(self, value: Any) -> str | None:
        """An identifier that the application chose, masked and bounded; what is no text or number: its type."""
        if value is None:
            return None
        plain = value if type(value) is str else normalised(value)
        if isinstance(plain, (int, float)):
            plain = str(plain)
        clean, _ = clean_text(plain if isinstance(plain, str) else f"<{type(value).__name__}>")
        return self.masker.identifier(cut_between_words(clean, NAME_LIMIT))

    def _names(self, key: str, value: Any, texts: list[PreparedText]) -> Any:
        if issubclass(type(value), (list, tuple, set, frozenset)):
            return [self._names(key, item, texts) for item in cast("list[Any]", value)]
        if issubclass(type(value), Mapping):
            return self._structure_of(value, texts)
        return self.name(value)

    def _structure_of(self, value: Any, texts: list[PreparedText]) -> Any:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if value is None or _is_plain_leaf(value):
            return value
        if issubclass(kind, str):
            return self._structure(value)
        if issubclass(kind, (int, float)):
            return normalised(value)
        if issubclass(kind, Mapping):
            mapping = cast("Mapping[str, Any]", value)
            return {self._key(key): self.value(key, item, texts) for key, item in mapping.items() if item is not None}
        if issubclass(kind, (list, tuple)):
            return [self._structure_of(item, texts) for item in cast("list[Any]", value)]
        return f"<{kind.__name__}>"

    def _key(self, key: Any) -> str:
        """A key is ours; should an application's come here, it must not pass for one of our references."""
        text = self._structure(key) if type(key) is str else f"<{type(key).__name__}>"
        return f"${text}" if text.startswith("$") else text

    def _structure(self, text: str) -> str:
        plain = text if type(text) is str else str.__str__(text)
        known = self._structures.get(plain)
        if known is None:
            clean, _ = clean_text(cut_between_words(plain, STRUCTURE_LIMIT))
            known = self.masker.identifier(clean)
            if len(plain) <= STRUCTURE_LIMIT and len(self._structures) < REMEMBERED_STRUCTURES:
                self._structures[plain] = known
        return known

    def _text(self, key: str, field_class: FieldClass, value: Any, texts: list[PreparedText]) -> Any:
        value = evaluated(value)
        if value is None:
            return None
        data, media = self._bytes(key, value)
        klass: Literal["d", "m"] = "d" if field_class is FieldClass.DECISION else "m"
        digest_key = self.digest_key if key in _DIGESTED else None
        texts.append(prepare_text(data, klass, media, kept_in_ledger(field_class, self.content), digest_key))
        return {"$t": len(texts) - 1}

    def _bytes(self, key: str, value: Any) -> tuple[bytes, str]:
        """Masked bytes of a text and their media type."""
        if issubclass(type(value), str):
            if len(value) > LONG:
                self.before_long()
            clean, _ = clean_text(str.__str__(value))
            data, media = self.masker.text(_bounded(clean)).encode(), "text/plain"
        else:
            data, media = self._json_bytes(key, value), "application/json"
        if len(data) <= TEXT_LIMIT_BYTES + NOTE_BYTES:
            return data, media
        kept = data[:TEXT_LIMIT_BYTES].decode("utf-8", "ignore")
        return (kept + _note(len(data))).encode(), "text/plain"

    def _json_bytes(self, key: str, value: Any) -> bytes:
        """Masked canonical bytes; most content is plain and without a secret, and is taken as it is."""
        if key in _REPEATED and type(value) is list:
            text = self._repeated.text(cast("list[Any]", value), self.masker.leaves, self.before_long)
            if text is not None:
                return text.encode()
        text = canonical_if_plain(value)
        if text is None or len(text) > LONG:
            self.before_long()
        if text is not None and len(text) <= TEXT_LIMIT_BYTES and self.masker.leaves(text):
            return text.encode()
        return jcs(self.masker.value(_with_bounded_texts(normalised(value))))


def _is_plain_leaf(value: Any) -> bool:
    """Whether a value is a switch or a number that normalising leaves as it is."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    return kind is bool or (kind is float and value - value == 0.0)


def _bounded(text: str) -> str:
    if len(text) <= TEXT_LIMIT_BYTES:
        return text
    return cut_between_words(text, TEXT_LIMIT_BYTES) + _note(len(text.encode()))


def _with_bounded_texts(tree: Any) -> Any:
    if isinstance(tree, str):
        return _bounded(tree)
    if isinstance(tree, list):
        return [_with_bounded_texts(item) for item in cast("list[Any]", tree)]
    if isinstance(tree, dict):
        return {key: _with_bounded_texts(item) for key, item in cast("dict[str, Any]", tree).items()}
    return tree


def _note(length_bytes: int) -> str:
    return f"\n[cut by amfs-otel: {length_bytes} bytes in all]"


def evaluated(value: Any) -> Any:
    """The value of a `Deferred`, made once (its raw snapshot where making fails); anything else as it is."""
    if type(value) is not Deferred:
        return value
    raw = value.raw
    made = guard.run("assemble", value.make, raw)
    # One assignment: the caller's thread may make it at the same moment, for a span.
    value.make = lambda _: raw if made is None else made
    return raw if made is None else made

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

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from amfs_otel import guard
from amfs_otel.chain.canonical import clean_text
from amfs_otel.model import FieldClass
from amfs_otel.settings import LedgerContent

MASKING_VERSION = 1
"""Stands in each skeleton: commitments and digests are over masked bytes."""

MASK = "[masked]"
NAME_CHARACTERS = 1024
SNAPSHOT_DEPTH = 12
SNAPSHOT_ITEMS = 20_000
SPAN_TEXT_LIMIT = 1 << 20
"""Characters of one text on a span, where the user set no limit; what lies beyond is cut before it is masked."""

_MODEL_MARKS = ("__pydantic_fields__", "__fields__", "__dataclass_fields__")
_ATOMS = (str, bytes, int, float, bool, type(None))


def snapshot(value: Any, depth: int = SNAPSHOT_DEPTH) -> Any:
    """Copies the structure of `value` (lists, tuples, dicts, the fields of models), sharing the leaves.

    Nothing is iterated that is not a list, tuple, set or dict; generators and unknown objects are kept by reference and
    never consumed. At most `SNAPSHOT_ITEMS` containers' items are copied; deeper or larger parts stay shared.
    """
    return _copied(value, depth, [SNAPSHOT_ITEMS])


def name(value: Any) -> str | None:
    """An identifier that the application gave, as a bounded text that is fit for spans; its own code is never run.

    `None` stays `None`; what is no string is named by its type.
    """
    if value is None:
        return None
    kind = cast("type[Any]", type(value))
    if not issubclass(kind, str):
        return f"<{kind.__name__}>"
    return clean_text(str.__str__(value)[:NAME_CHARACTERS])[0]


def _copied(value: Any, depth: int, budget: list[int]) -> Any:
    kind = cast("type[Any]", type(value))
    if kind in _ATOMS or depth <= 0:
        return value
    if kind is list or kind is tuple:
        items = cast("list[Any]", value)
        budget[0] -= len(items)
        return [_copied(item, depth - 1, budget) for item in items] if budget[0] > 0 else value
    if kind is dict:
        mapping = cast("dict[Any, Any]", value)
        budget[0] -= len(mapping)
        if budget[0] <= 0:
            return value
        if not all(type(key) is str for key in mapping):
            # Building a dict would run the keys' own __hash__ and __eq__.
            return mapping.copy()
        return {key: _copied(item, depth - 1, budget) for key, item in mapping.items()}
    if kind is set or kind is frozenset:
        return set(cast("set[Any]", value))
    fields = _model_fields(value, kind)
    return value if fields is None else _copied(fields, depth, budget)


def _model_fields(value: Any, kind: type) -> dict[str, Any] | None:
    """The fields of a pydantic model or dataclass, read from its `__dict__`, never through its own code."""
    if not (
        hasattr(kind, "__pydantic_fields__") or hasattr(kind, "__fields__") or hasattr(kind, "__dataclass_fields__")
    ):
        return None
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return None


def kept_in_ledger(field_class: FieldClass, content: LedgerContent) -> bool:
    """Whether the decision trace keeps a text of `field_class` under `content`."""
    if field_class is FieldClass.DECISION:
        return content is not LedgerContent.NONE
    if field_class is FieldClass.MESSAGE:
        return content is LedgerContent.ALL
    return True


_SECRETS = re.compile(
    r"""
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | \b(?:sk|rk|pk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bgh[pousr]_[A-Za-z0-9]{30,}
    | \bgithub_pat_[A-Za-z0-9_]{30,}
    | \bglpat-[A-Za-z0-9_-]{18,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \bAIza[0-9A-Za-z_-]{30,}
    | \bya29\.[0-9A-Za-z_-]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
    | \b(?i:bearer|basic)[ ]+[A-Za-z0-9._~+/=-]{16,}
    | (?<=://)[^\s/@:]{0,256}:[^\s/@]{1,256}(?=@)
    | (?i:\b(?:api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|secret[_-]?key|passw(?:or)?d|pwd)
        \b["']?[ ]*[:=][ ]*["']?)(?P<assigned>[^\s"',;&}]{6,})
    """,
    re.VERBOSE,
)
_CARD = re.compile(r"(?<![0-9A-Za-z.-])(?:[0-9][ -]?){12,18}[0-9](?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class Masker:
    """Masks secrets in texts.

    Attributes:
        patterns: The user's own expressions, besides the built-in ones.
        functions: The user's own functions, text → text.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    functions: tuple[Callable[[str], str], ...] = ()

    def identifier(self, text: str) -> str:
        """Masks keys and tokens; card numbers are left, they would damage numeric references."""
        masked = _SECRETS.sub(_without_secret, text)
        for pattern in self.patterns:
            masked = pattern.sub(MASK, masked)
        for function in self.functions:
            masked = function(masked)
        return masked

    def text(self, text: str) -> str:
        """Masks keys, tokens and card numbers."""
        return _CARD.sub(_without_card, self.identifier(text))

    def value(self, value: Any) -> Any:
        """Masks each string inside a normalised JSON value; a key that names a secret masks its whole value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            return {self.text(k): MASK if _names_secret(k, v) else self.value(v) for k, v in mapping.items()}
        return value


_SECRET_KEYS = re.compile(
    r"(?i)^(?:api[_-]?key|x-api-key|authorization|proxy-authorization|cookie|set-cookie|access[_-]?token"
    r"|refresh[_-]?token|auth[_-]?token|client[_-]?secret|secret[_-]?key|private[_-]?key|passw(?:or)?d|pwd)$"
)


def _names_secret(key: str, value: object) -> bool:
    return isinstance(value, str) and bool(value) and _SECRET_KEYS.match(key) is not None


def _without_secret(match: re.Match[str]) -> str:
    assigned = match.group("assigned")
    return MASK if assigned is None else match.group(0)[: -len(assigned)] + MASK


def _without_card(match: re.Match[str]) -> str:
    digits = [int(c) for c in match.group(0) if c.isdigit()]
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return MASK if (sum(digits[::-2]) + sum(doubled)) % 10 == 0 else match.group(0)


_functions: list[Callable[[str], str]] = []


def add_masking_function(function: Callable[[str], str]) -> None:
    """Adds a function text → text that every text passes before it is kept or exported."""
    _functions.append(function)


def masker_from_file(path: Path | None) -> Masker:
    """A masker with the expressions in `path`, one a line; an unusable line is reported once and left out."""
    if path is None:
        return Masker(functions=tuple(_functions))
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        guard.once("mask_patterns", 30, "amfs-otel: %s cannot be read (%s); no own patterns", path, error.strerror)
        return Masker(functions=tuple(_functions))
    return Masker(tuple(_compiled(path, lines)), tuple(_functions))


def _compiled(path: Path, lines: Iterable[str]) -> Iterable[re.Pattern[str]]:
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                yield re.compile(line)
            except re.error as error:
                guard.once(f"mask:{number}", 30, "amfs-otel: %s line %d: %s; left out", path, number, error.msg)

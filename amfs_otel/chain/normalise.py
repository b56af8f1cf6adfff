"""Any Python value -> a JSON-able tree, without raising and without running more foreign code than needed (FORMAT 2.2).

Types are judged by ``type(value)``, never by ``isinstance`` (a hostile ``__class__`` could run code), and read
through the built-in base types' own methods, so an overridden ``__iter__``, ``__eq__``, ``__bool__`` or ``__str__``
is not called. Libraries are known by duck typing only; nothing is imported for them.
"""

import base64
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from amfs_otel.chain.jcs import MAX_SAFE_INTEGER, encode, is_plain_float

MAX_DEPTH = 64
"""Containers nested deeper than this are cut with ``{"$cut":"depth"}``."""

MAX_NODES = 1_000_000
"""A value with more nodes is cut with ``{"$cut":"size"}``: shared references could otherwise unfold without end."""

MAX_REPR_CHARACTERS = 256
MAX_ARRAY_ITEMS = 10_000
MAX_ARRAY_BYTES = 1 << 20

_REPLACED = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")


def cleaned(text: str) -> tuple[str, int]:
    """Return the text with NUL and lone surrogates replaced by U+FFFD, and the number of replacements."""
    if text.isascii():
        count = text.count("\0")
        return (text.replace("\0", "\ufffd"), count) if count else (text, 0)
    try:
        text.encode()
        count = text.count("\0")
        return (text.replace("\0", "\ufffd"), count) if count else (text, 0)
    except UnicodeEncodeError:
        count = sum(1 for character in text if character == "\0" or "\ud800" <= character <= "\udfff")
        return text.translate(_REPLACED), count


class Normaliser:
    """One normalisation of one value.

    Attributes:
        plain: After `tree`: for all that was met ``json``'s encoder gives JCS.
    """

    __slots__ = ("_nodes", "_path", "plain")

    def __init__(self) -> None:
        self.plain = True
        self._nodes = 0
        self._path: set[int] = set()

    def tree(self, value: Any) -> Any:
        """Return the JSON-able tree of a value."""
        self._nodes += 1
        kind = cast("type[Any]", type(value))
        if kind is str:
            return self._string(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return _integer(value)
        if kind is float:
            return self._float(value)
        if self._nodes > MAX_NODES:
            return {"$cut": "size"}
        try:
            return self._other(value, kind)
        except (RecursionError, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001 - foreign code failed; the value becomes a marker
            return {"$error": type(error).__name__, "$type": _type_name(kind)}

    def _other(self, value: Any, kind: type[Any]) -> Any:
        """Return the tree of a value that is not exactly None, bool, int, float or str."""
        base = _base(kind, _PLAINER)
        if base is not None:
            return self.tree(_PLAINER[base](value))
        base = _base(kind, _TAGGED)
        if base is not None:
            return _TAGGED[base](value)
        for readers, build in ((_MAPPINGS, self._mapping), (_SEQUENCES, self._list), (_SETS, self._set)):
            base = _base(kind, readers)
            if base is not None:
                items = list(readers[base](value))
                return self._within(value, lambda build=build, items=items: build(items))
        return self._foreign(value, kind)

    def _within(self, value: Any, build: Callable[[], Any]) -> Any:
        """Build a container's tree unless it stands inside itself or too deep."""
        identity = id(value)
        if identity in self._path:
            return {"$cut": "cycle"}
        if len(self._path) >= MAX_DEPTH:
            return {"$cut": "depth"}
        self._path.add(identity)
        try:
            return build()
        finally:
            self._path.discard(identity)

    def _string(self, text: str) -> Any:
        clean, replaced = cleaned(text)
        return {"$replaced": replaced, "$str": clean} if replaced else clean

    def _float(self, value: float) -> Any:
        if math.isnan(value):
            return {"$float": "NaN"}
        if math.isinf(value):
            return {"$float": "Infinity" if value > 0 else "-Infinity"}
        if not is_plain_float(value):
            self.plain = False
        return value

    def _list(self, items: Iterable[Any]) -> list[Any]:
        return [self.tree(item) for item in items]

    def _mapping(self, pairs: list[tuple[Any, Any]]) -> Any:
        """Return an object; pairs, if some key is not a clean string, so that no two keys can fall together."""
        result: dict[str, Any] = {}
        for key, value in pairs:
            if type(key) is not str or cleaned(key)[1]:
                return {"$map": sorted(([self.tree(key), self.tree(value)] for key, value in pairs), key=_order)}
            if not key.isascii():
                self.plain = False
            result["$" + key if key.startswith("$") else key] = self.tree(value)
        return result

    def _set(self, items: Iterable[Any]) -> Any:
        return {"$set": sorted(self._list(items), key=_order)}

    def _foreign(self, value: Any, kind: type[Any]) -> Any:
        names = _field_names(kind)
        if names is not None:
            return self._within(value, lambda: self._fields(value, kind, names))
        if kind.__module__.partition(".")[0] == "numpy" and hasattr(kind, "dtype"):
            return self._numpy(value, kind)
        return _unknown(value, kind)

    def _fields(self, value: Any, kind: type[Any], names: list[str]) -> Any:
        """Return a dataclass, attrs object or pydantic model by its stored fields, without calling a method of it."""
        result = self._mapping([(name, object.__getattribute__(value, name)) for name in names if _has(value, name)])
        return {"$type": _type_name(kind), **result}

    def _numpy(self, value: Any, kind: type[Any]) -> Any:
        if value.nbytes > MAX_ARRAY_BYTES or (value.ndim and value.size > MAX_ARRAY_ITEMS):
            return {"$type": _type_name(kind), "dtype": str(value.dtype), "shape": [int(size) for size in value.shape]}
        inner = value.tolist()
        return _unknown(value, kind) if type(inner) is kind else self.tree(inner)


def _order(tree: Any) -> bytes:
    return encode(tree).encode()


def _integer(value: int) -> Any:
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    try:
        return {"$int": int.__repr__(value)}
    except ValueError:  # beyond sys.set_int_max_str_digits; hexadecimal has no limit
        return {"$int": hex(value)}


def _datetime(value: datetime) -> Any:
    if value.tzinfo is None:
        return {"$naive": datetime.isoformat(value, timespec="microseconds")}
    moment = datetime.astimezone(value, UTC)
    return datetime.isoformat(moment.replace(tzinfo=None), timespec="microseconds") + "Z"


def _bytes(value: Any) -> Any:
    return {"$bytes": base64.b64encode(memoryview(value).tobytes()).decode("ascii")}


_PLAINER: dict[type[Any], Callable[[Any], Any]] = {
    Enum: lambda value: object.__getattribute__(value, "_value_"),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    timedelta: lambda value: value // timedelta(microseconds=1),
    UUID: UUID.__str__,
    PurePath: PurePath.__str__,
}
"""Types that a plainer value stands for without loss of meaning (a timedelta: its microseconds)."""

_TAGGED: dict[type[Any], Callable[[Any], Any]] = {
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    Decimal: lambda value: {"$dec": Decimal.__str__(value)},
    datetime: _datetime,
    date: lambda value: {"$date": date.isoformat(value)},
    time: lambda value: {"$time": time.isoformat(value, timespec="microseconds")},
}
"""Types with a form of their own. A datetime is a date too, so it stands first."""

_Readers = dict[type[Any], Callable[[Any], Any]]
_MAPPINGS: _Readers = {dict: cast("Any", dict).items, MappingProxyType: cast("Any", MappingProxyType).items}
_SEQUENCES: _Readers = {base: base.__iter__ for base in cast("tuple[Any, ...]", (list, tuple, deque))}
_SETS: _Readers = {base: base.__iter__ for base in cast("tuple[Any, ...]", (set, frozenset))}


def _base(kind: type[Any], table: Mapping[type[Any], Any]) -> type[Any] | None:
    return kind if kind in table else next((base for base in table if issubclass(kind, base)), None)


def _field_names(kind: type[Any]) -> list[str] | None:
    """Return the names of the fields that a dataclass, an attrs class or a pydantic model (2, then 1) declares."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    for mark in ("__pydantic_fields__", "__attrs_attrs__", "__fields__"):
        declared = next((vars(base)[mark] for base in kind.__mro__ if mark in vars(base)), None)
        if type(declared) is dict:
            return [name for name in cast("dict[Any, Any]", declared) if type(name) is str]
        if declared is not None and issubclass(type(declared), tuple):
            return [attribute.name for attribute in declared]
    return None


def _has(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def _unknown(value: Any, kind: type[Any]) -> dict[str, Any]:
    """Return type name and bounded repr; the default repr says only the type and an address, so it is left out."""
    shown: dict[str, Any] = {"$type": _type_name(kind)}
    if kind.__repr__ is not object.__repr__:
        try:
            text = str.__str__(repr(value))
        except (RecursionError, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001 - a __repr__ that raises, SystemExit too, must not cost the record
            return {**shown, "$error": type(error).__name__}
        shown["$repr"] = cleaned(text[:MAX_REPR_CHARACTERS])[0] + ("…" if len(text) > MAX_REPR_CHARACTERS else "")
    return shown


def _type_name(kind: type[Any]) -> str:
    # type.__getattribute__ passes by a metaclass that invents attributes.
    module = type.__getattribute__(kind, "__module__")
    name = f"{module if type(module) is str else '?'}.{type.__getattribute__(kind, '__qualname__')}"
    return cleaned(name[:MAX_REPR_CHARACTERS])[0]

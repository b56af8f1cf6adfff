"""The shapes that content attributes must have: messages, parts, tool definitions, documents, memory records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def shape_faults(schema: str, value: Any, messages: Mapping[str, Any]) -> Iterable[str]:
    """What is wrong with a content attribute; `messages` is that section of the reference."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            yield "not JSON"
            return
    if schema == "json_object":
        return
    if not isinstance(value, list):
        yield "not an array"
        return
    for index, item in enumerate(value):
        yield from (f"[{index}]: {fault}" for fault in _item_faults(schema, item, messages))


def _item_faults(schema: str, item: Any, messages: Mapping[str, Any]) -> Iterable[str]:
    if not isinstance(item, dict):
        yield "not an object"
        return
    if schema == "system_instructions":
        yield from _part_faults(item, messages)
        return
    shape = messages[schema]
    yield from _member_faults(item, shape["item_required"], shape["item_properties"])
    if "parts" in item:
        if not isinstance(item["parts"], list):
            yield "parts is not an array"
            return
        for part in item["parts"]:
            yield from _part_faults(part, messages)


def _part_faults(part: Any, messages: Mapping[str, Any]) -> Iterable[str]:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        yield "a part without a type"
        return
    shape = messages["parts"].get(part["type"])
    if shape is not None:
        yield from (
            f"{part['type']}: {fault}" for fault in _member_faults(part, shape["required"], shape["properties"])
        )


def _member_faults(item: Mapping[str, Any], required: Iterable[str], known: Iterable[str]) -> Iterable[str]:
    for name in required:
        if name not in item:
            yield f"{name} is missing"
    for name in item:
        if name not in known:
            yield f"{name} is not a member"

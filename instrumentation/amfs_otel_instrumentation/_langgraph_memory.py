"""What langgraph's stores and checkpointers are asked and answer → fields of events. Pure functions.

They run on the caller's thread on the library's own named tuples and items. A namespace is shown as its parts joined by
"/", as AMFS shows entity paths. Nothing of an application's value is called.
"""

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from amfs_otel import capture
from amfs_otel.capture import Kind

Json = dict[str, Any]

RESULT_LIMIT = 20
"""Results of a search that are named; all are counted."""
WRITE_LIMIT = 20
"""Writes of a task whose channels are named; all are counted."""

_POSITIONAL: dict[str, tuple[str, ...]] = {
    "get": ("namespace", "key"),
    "put": ("namespace", "key", "value"),
    "delete": ("namespace", "key"),
    "search": ("namespace_prefix",),
    "list_namespaces": (),
}
_KINDS = {
    "get": Kind.MEMORY_READ,
    "put": Kind.MEMORY_WRITE,
    "delete": Kind.MEMORY_WRITE,
    "search": Kind.MEMORY_QUERY,
    "list_namespaces": Kind.MEMORY_QUERY,
}
_OPERATIONS = {"GetOp": "get", "PutOp": "put", "SearchOp": "search", "ListNamespacesOp": "list_namespaces"}


def kind_from_operation(operation: str) -> Kind:
    """The kind of event that a call of the store is."""
    return _KINDS[operation]


def arguments_from_call(operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    """The arguments of a public method by name."""
    return {**dict(zip(_POSITIONAL[operation], args, strict=False)), **kwargs}


def arguments_from_op(op: Any) -> tuple[str, Json] | None:
    """Name and arguments of one of the operations that `batch` takes."""
    operation = _OPERATIONS.get(type(op).__name__)
    if operation is None:
        return None
    arguments: Json = op._asdict()
    if operation == "put" and arguments.get("value") is None:
        operation = "delete"
    return operation, arguments


def fields_from_arguments(operation: str, arguments: Mapping[str, Any]) -> Json:
    """What is known when the store is asked."""
    if operation == "search":
        parameters: Json = {"entity_path": path_from_namespace(arguments.get("namespace_prefix"))}
        parameters["query"] = capture.snapshot(arguments.get("query"))
        parameters["other_parameters"] = capture.snapshot(arguments.get("filter")) or None
        return {"operation": operation, "parameters": {**_known(parameters), **_numbers(arguments)}}
    if operation == "list_namespaces":
        others = {key: arguments.get(key) for key in ("prefix", "suffix", "match_conditions")}
        parameters = {"other_parameters": capture.snapshot(_known(others)) or None}
        return {"operation": operation, "parameters": {**_known(parameters), **_numbers(arguments)}}
    fields: Json = {
        "operation": operation,
        "entity_path": path_from_namespace(arguments.get("namespace")),
        "key": capture.name(arguments.get("key")),
    }
    if operation == "put":
        fields["value"] = capture.snapshot(arguments.get("value"))
    return fields


def path_from_namespace(namespace: Any) -> str | None:
    """A namespace as one text."""
    if type(namespace) not in (tuple, list):
        return capture.name(namespace)
    parts = (capture.name(part) or "" for part in itertools.islice(cast("tuple[Any, ...]", namespace), 64))
    return capture.name("/".join(parts))


def result_from_return(operation: str, returned: Any) -> Json:
    """What the store answered."""
    if operation == "get":
        if returned is None:
            return {"found": False}
        return {"found": True, "value": capture.snapshot(returned.value)}
    if operation in ("put", "delete") or not isinstance(returned, list):
        return {}
    items = cast("list[Any]", returned)
    return {"result_count": len(items), "results": [_result(item) for item in items[:RESULT_LIMIT]]}


def _result(item: Any) -> Json:
    if isinstance(item, tuple):
        return {"entity_path": path_from_namespace(item)}
    score = getattr(item, "score", None)
    found: Json = {"entity_path": path_from_namespace(item.namespace), "key": capture.name(item.key)}
    return {**found, "score": score} if type(score) in (int, float) else found


def fields_from_checkpoint(config: Any, checkpoint: Any, metadata: Any) -> Json:
    """What is known of a checkpoint that was written: its names, and why and at which step it was."""
    about = cast("Json", metadata) if isinstance(metadata, dict) else {}
    step = about.get("step")
    fields: Json = {"operation": "put", "label": capture.name(checkpoint.get("id")), **_place(config)}
    fields["phase"] = about.get("source")
    fields["step"] = step if type(step) is int else None
    return _known(fields)


def fields_from_writes(config: Any, writes: Any, task_id: Any) -> Json:
    """What is known of the writes of a task that were kept beside a checkpoint: where, whose, and to which channels.

    What was written stands in the steps of the run, and whole in the checkpointer; of anything but a list, a tuple or a
    deque nothing is read.
    """
    place: Any = config.get("configurable") or {}
    fields: Json = {"operation": "put_writes", "label": capture.name(place.get("checkpoint_id")), **_place(config)}
    fields["task_id"] = capture.name(task_id)
    if type(writes) in (list, tuple, deque):
        named = itertools.islice(writes, WRITE_LIMIT)
        fields["write_count"] = len(writes)
        fields["writes"] = [{"key": capture.name(one[0])} for one in named if type(one) in (tuple, list) and one]
    return _known(fields)


def _place(config: Any) -> Json:
    """The thread, and the graph inside the graph, whose checkpoint it is."""
    place: Any = config.get("configurable") or {}
    thread_id = place.get("thread_id")
    return {
        "thread_id": str(thread_id) if type(thread_id) in (int, UUID) else capture.name(thread_id),
        "namespace": capture.name(place.get("checkpoint_ns")) or None,
    }


def _numbers(arguments: Mapping[str, Any]) -> Json:
    found = {key: arguments.get(key) for key in ("limit", "offset", "max_depth")}
    return {key: value for key, value in found.items() if type(value) is int}


def _known(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}

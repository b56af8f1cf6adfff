"""What MCP's clients and servers are asked and answer → fields of events. Pure functions.

They run on the caller's thread on the SDK's own models (its clients) and on JSON objects (its server from 2.x on); what
`_…_from_snapshot` makes is made on the worker. Content is shown as it stands on the wire, without its empty members.
"""

from collections.abc import Mapping
from typing import Any, cast

from amfs_otel import capture
from amfs_otel.capture import Deferred, Kind
from amfs_otel.capture.media import bounded_base64

Json = dict[str, Any]

CALL = "tools/call"
READ = "resources/read"
LIST = "tools/list"

KINDS: dict[str, Kind] = {CALL: Kind.TOOL_CALL, READ: Kind.RETRIEVAL}
"""Method of the protocol → the kind of event that it is. What else clients ask for is no step of an agent."""

DOCUMENT_LIMIT = 50
"""Contents of a resource that are named and kept; all are counted."""

_POSITIONAL: dict[str, tuple[str, ...]] = {CALL: ("name", "arguments"), READ: ("uri",)}

_WIRE_NAMES = {"mime_type": "mimeType", "meta": "_meta", "structured_content": "structuredContent"}
"""Names of the members of 2.x's models → those on the wire, which are also 1.x's names."""

TOOL_ERROR = "tool_error"
"""The conventions' type of an error that a tool's result tells."""


def params_from_call(method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    """The parameters of a request, from the arguments of a client's public method."""
    return {**dict(zip(_POSITIONAL[method], args, strict=False)), **kwargs}


def fields_from_params(method: str, params: Mapping[str, Any]) -> Json | None:
    """What is known when a request begins; `None` where it names nothing, so that it will be refused."""
    if method == CALL:
        name = capture.name(params.get("name"))
        if name is None:
            return None
        return {"mcp_method": method, "tool_name": name, "arguments": capture.snapshot(params.get("arguments"))}
    uri = uri_from_param(params.get("uri"))
    return None if uri is None else {"mcp_method": method, "results": [{"document_id": uri}]}


def asked_from_fields(fields: Json) -> tuple[str, str]:
    """What a request asks for: its method, and the tool's name or the resource's URI."""
    method: str = fields["mcp_method"]
    return method, fields["tool_name"] if method == CALL else fields["results"][0]["document_id"]


def uri_from_param(uri: Any) -> str | None:
    """The URI of a resource, which 1.x has as an object of pydantic's."""
    known = type(uri).__module__.startswith("pydantic")
    return capture.name(str(uri) if known else uri)


def tools_from_list(result: Any) -> list[Any]:
    """The names in an answer that lists a server's tools."""
    tools = _member(result, "tools")
    return [_member(tool, "name") for tool in cast("list[Any]", tools)] if isinstance(tools, list) else []


def about_server(name: Any, version: Any, protocol_version: Any = None) -> Json:
    """Who serves it, as far as that is known."""
    return {
        "source_name": capture.name(name) or None,
        "source_version": capture.name(version) or None,
        "protocol_version": protocol_version if type(protocol_version) is str else None,
    }


def ended_from_result(method: str, result: Any) -> tuple[str, str | None, Json]:
    """Status, error type and fields of the answer `result`: a model of the SDK's, or the JSON object on the wire."""
    if _member(result, "resultType", "result_type") == "input_required":
        return "incomplete", None, {}
    if method == READ:
        return "ok", None, _documents(_member(result, "contents"))
    task = _member(result, "task")
    if task is not None:  # the tool's own result comes later, if anybody asks for it
        return "incomplete", None, {"result": Deferred(_on_the_wire, {"task": capture.snapshot(task)})}
    failed = _member(result, "isError", "is_error") is True
    fields: Json = {"success": not failed, "result": Deferred(_result_from_snapshot, capture.snapshot(result))}
    return ("error", TOOL_ERROR, fields) if failed else ("ok", None, fields)


def ended_from_error_data(error: Any) -> tuple[str, str | None, Json]:
    """`ended_from_result` for the error object that a server of 1.x answers with."""
    code = code_from_error(error)
    return "error", code or "_OTHER", {"status_code": code, "error_message": getattr(error, "message", None)}


def code_from_error(error: Any) -> str | None:
    """The code of JSON-RPC that an error of the SDK's carries, or its data, as the conventions want it."""
    data = getattr(error, "error", error)
    return str(int(data.code)) if type(data).__name__ == "ErrorData" else None


def _documents(contents: Any) -> Json:
    found = cast("list[Any]", contents) if isinstance(contents, list) else []
    kept = found[:DOCUMENT_LIMIT]
    return {
        "result_count": len(found),
        "results": [{"document_id": uri_from_param(_member(one, "uri"))} for one in kept],
        "documents": Deferred(_contents_from_snapshot, capture.snapshot(kept)),
    }


def _member(value: Any, *names: str) -> Any:
    """A member of a JSON object, or of a model's own, under the first of `names` that it has."""
    members = cast("Json", value if isinstance(value, dict) else getattr(value, "__dict__", {}))
    return next((members[name] for name in names if members.get(name) is not None), None)


# -- texts, on the worker ------------------------------------------------------------------------------------------


def _result_from_snapshot(raw: Any) -> Any:
    """A tool's result without what stands elsewhere in the event."""
    shown = _on_the_wire(raw)
    if not isinstance(shown, dict):
        return shown
    elsewhere = {"isError", "is_error", "resultType", "result_type"}
    return {key: value for key, value in cast("Json", shown).items() if key not in elsewhere}


def _contents_from_snapshot(raw: Any) -> Any:
    return [_on_the_wire(one) for one in raw]


def _on_the_wire(value: Any) -> Any:
    """The members of models and content blocks under their wire names, media bounded; the tool's own JSON as it is."""
    if isinstance(value, list):
        return [_on_the_wire(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return uri_from_param(value) if type(value).__module__.startswith("pydantic") else value
    shown: Json = {}
    for key, item in cast("Json", value).items():
        name = _WIRE_NAMES.get(key, key)
        if item is None or name == "_meta":
            continue
        if name in ("data", "blob"):
            shown[name] = bounded_base64(item)
        else:
            shown[name] = item if name == "structuredContent" else _on_the_wire(item)
    return shown

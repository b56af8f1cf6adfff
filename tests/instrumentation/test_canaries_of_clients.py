"""The canary rule with real clients: what an application gives to openai, AMFS, langchain and us, at every setting."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import openai
import pytest
from amfs import AgentMemory
from amfs_filesystem import FilesystemAdapter
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from openai import OpenAI

from amfs_otel import api, instrumentor
from amfs_otel.demo.script import Failure, Reply, ToolCall
from amfs_otel.demo.wire import completion_body, error_body
from amfs_otel.settings import LedgerContent, SpanContent
from tests.support.canaries import Canary, Left, Text, a_run, expected

ASKED, ANSWERED = "gen_ai.input.messages", "gen_ai.output.messages"


def canary(field: str, of: Text, *attributes: str, recorded: bool = True) -> Canary:
    """The field's own text; lower-case letters, digits and hyphens, so that it may stand in a URL."""
    return Canary(field, f"canary-{field.replace(' ', '-').lower()}-end", of, frozenset(attributes), recorded)


PROMPT = canary("prompt", Text.MESSAGE, ASKED)
INSTRUCTION = canary("system prompt", Text.MESSAGE, ASKED)
COMPLETION = canary("completion", Text.MESSAGE, ANSWERED)
TOOL_DEFINITION = canary("tool definition", Text.MESSAGE, "gen_ai.tool.definitions")
WANTED_ARGUMENT = canary("argument that the model wants", Text.MESSAGE, ANSWERED, ASKED)
SENT_RESULT = canary("tool result for the model", Text.MESSAGE, ASKED)
STOP = canary("stop sequence", Text.MESSAGE, "gen_ai.request.stop_sequences")
METADATA = canary("metadata", Text.MESSAGE)
EMBEDDED = canary("embedded text", Text.MESSAGE)
ERROR_BODY = canary("error body", Text.MESSAGE)
ARGUMENT = canary("tool argument", Text.MESSAGE, "gen_ai.tool.call.arguments")
RESULT = canary("tool result", Text.MESSAGE, "gen_ai.tool.call.result")
TOOL_ERROR = canary("exception text", Text.MESSAGE)
DOCUMENT = canary("document", Text.MESSAGE, "gen_ai.retrieval.documents")
DOCUMENT_QUERY = canary("query for documents", Text.DECISION)
SUMMARY = canary("context summary", Text.DECISION)
STATEMENT = canary("decision", Text.DECISION)
VALUE = canary("memory value", Text.DECISION, "gen_ai.memory.records")
QUERY = canary("memory query", Text.DECISION, "gen_ai.memory.query.text")
PATH = canary("URL path", Text.MESSAGE, recorded=False)
URL_QUERY = canary("URL query", Text.MESSAGE, recorded=False)
MORE_QUERY = canary("query parameter", Text.MESSAGE, recorded=False)
EXTRA = canary("unknown parameter", Text.MESSAGE, recorded=False)
USER = canary("URL user", Text.NEVER)
PASSWORD = canary("URL password", Text.NEVER)
API_KEY = canary("API key", Text.NEVER)
HEADER = canary("header", Text.NEVER)
CALL_HEADER = canary("header of one call", Text.NEVER)
ORGANIZATION = canary("header of the organization", Text.NEVER)
FIELDS = [value for value in globals().values() if isinstance(value, Canary)]


class Shelf(BaseRetriever):
    """Finds one document."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(DOCUMENT.text)]


class Received(list[str]):
    """Requests as a server saw them: URL, headers and body; and where it listens."""

    port = 0

    def text(self) -> str:
        """All of it, what is encoded decoded."""
        basic = [
            line.removeprefix("authorization: Basic ") for line in "\n".join(self).splitlines() if " Basic " in line
        ]
        return "\n".join([*self, *(base64.b64decode(one).decode() for one in basic)])


@contextmanager
def serving() -> Iterator[Received]:
    """A model behind any path: it wants a tool, then answers; the model `broken` is refused."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            headers = "\n".join(f"{name.lower()}: {value}" for name, value in self.headers.items())
            received.append(f"{self.path}\n{headers}\n{body}")
            status, answer = reply_to(json.loads(body))
            self.send_response(status)
            for name, value in {"content-type": "application/json", "content-length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield received
        server.shutdown()
        thread.join()


def reply_to(request: dict[str, Any]) -> tuple[int, bytes]:
    """Status and body."""
    if request["model"] == "broken":
        return 400, error_body(Failure(400, ERROR_BODY.text, "invalid_request_error"))
    if "input" in request:
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, json.dumps({"object": "list", "model": "m", "data": [vector], "usage": usage}).encode()
    wanted = ToolCall("call-1", "look", json.dumps({"order": WANTED_ARGUMENT.text}))
    ended = request["messages"][-1]["role"] == "tool"
    reply = Reply(text=COMPLETION.text) if ended else Reply(tool_calls=(wanted,))
    return 200, completion_body(reply, request, 1)


def ask_models(port: int) -> None:
    """Two clients: one with a key and headers, one with everything in its URL."""
    told = {"max_retries": 0, "timeout": 20}
    url = f"http://{USER.text}:{PASSWORD.text}@127.0.0.1:{port}/{PATH.text}/v1?q={URL_QUERY.text}"
    with (
        OpenAI(
            api_key=API_KEY.text,
            organization=ORGANIZATION.text,
            base_url=f"http://127.0.0.1:{port}/v1",
            default_headers={"x-canary": HEADER.text},
            **told,  # type: ignore[arg-type]
        ) as keyed,
        OpenAI(api_key="any", base_url=url, default_query={"more": MORE_QUERY.text}, **told) as located,  # type: ignore[arg-type]
    ):
        for client in (keyed, located):
            converse(client)
            client.embeddings.create(model="e", input=EMBEDDED.text, encoding_format="float")
            with pytest.raises(openai.BadRequestError, match=ERROR_BODY.text):
                client.chat.completions.create(model="broken", messages=[{"role": "user", "content": PROMPT.text}])


def converse(client: OpenAI) -> None:
    """A prompt, a tool that the model wants, its result, an answer."""
    function = {"name": "look", "description": TOOL_DEFINITION.text, "parameters": {"type": "object", "properties": {}}}
    said: list[Any] = [{"role": "system", "content": INSTRUCTION.text}, {"role": "user", "content": PROMPT.text}]
    more: dict[str, Any] = {
        "model": "m",
        "tools": [{"type": "function", "function": function}],
        "stop": [STOP.text],
        "metadata": {"who": METADATA.text},
        "extra_headers": {"x-once": CALL_HEADER.text},
        "extra_body": {"unknown": EXTRA.text},
    }
    message = client.chat.completions.create(messages=said, **more).choices[0].message
    said.append(message.model_dump(exclude_none=True))
    said.append({"role": "tool", "tool_call_id": "call-1", "content": SENT_RESULT.text})
    assert client.chat.completions.create(messages=said, **more).choices[0].message.content == COMPLETION.text


@api.tool("look")
def look(order: str) -> str:
    """A tool that works."""
    assert order == ARGUMENT.text
    return RESULT.text


@api.tool("break")
def broken() -> None:
    """A tool that does not."""
    raise LookupError(TOOL_ERROR.text)


def act(memory: Path) -> None:
    """Tools, documents, memory, and the agent's own words."""
    look(order=ARGUMENT.text)
    with pytest.raises(LookupError, match=TOOL_ERROR.text):
        broken()
    Shelf().invoke(DOCUMENT_QUERY.text)
    handle = AgentMemory("agent", adapter=FilesystemAdapter(memory, "default"))
    handle.write("checkout", "retry", {"how": VALUE.text})
    assert handle.read("checkout", "retry").value == {"how": VALUE.text}  # type: ignore[union-attr]
    handle.search(query=QUERY.text)
    handle.close()
    api.record_context("incidents", SUMMARY.text, source="PagerDuty API")
    api.record_decision(STATEMENT.text)


@pytest.mark.parametrize("ledger", list(LedgerContent))
@pytest.mark.parametrize("span", list(SpanContent))
def test_what_clients_are_given_is_found_exactly_where_its_class_allows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ledger: LedgerContent, span: SpanContent
) -> None:
    with serving() as received, a_run(tmp_path / "state", caplog, ledger, span) as run:
        instrumentor.instrument(["openai", "amfs", "langchain"])
        try:
            left: Left = run.tell(lambda: (ask_models(received.port), act(tmp_path / "memory")))
        finally:
            instrumentor.uninstrument()
    sent = received.text()
    of_requests = [*FIELDS[: FIELDS.index(ERROR_BODY)], *FIELDS[FIELDS.index(PATH) :]]
    assert {one.field for one in of_requests if one.text not in sent} == {COMPLETION.field}, "the clients sent the rest"
    assert left.found(FIELDS) == expected(FIELDS, ledger, span)

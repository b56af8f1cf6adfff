"""Applications as people deploy them: a folder with `app.py`, a real server in front, real clients, a real end.

Each request is one plain model call and one whose answer is streamed on to the client. The server inherits a listening
socket, so a client may connect before the server is up; nobody has to wait for a port.
"""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any

from amfs_otel.assemble.journal import EventPrepared, decoded
from amfs_otel.demo.model_server import ModelServer
from amfs_otel.spool import Frame, StateDirectory, list_segments, read_frames
from tests.integration.test_process_exit import left
from tests.support.programs import environment
from tests.support.spooled import Spooled, spooled

BACKLOG = 128
PATIENCE_S = 60

AGENT = """
def asked(number, part, **more):
    return {"model": "m", "messages": [{"role": "user", "content": f"question-{number}-{part}"}], **more}

def text(chunk):
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""
"""
ASGI = f"""
import os
from contextlib import asynccontextmanager
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
{AGENT}
client = AsyncOpenAI()

async def chat(request):
    number = request.path_params["number"]
    await client.chat.completions.create(**asked(number, "plan"))
    async def answer():
        async for chunk in await client.chat.completions.create(**asked(number, "answer", stream=True)):
            yield text(chunk)
    return StreamingResponse(answer(), headers={{"pid": str(os.getpid())}})

@asynccontextmanager
async def lifespan(app):
    await client.chat.completions.create(**asked("7000", "up"))
    yield
    await client.chat.completions.create(**asked("7000", "down"))

app = Starlette(routes=[Route("/{{number}}", chat)], lifespan=lifespan)
"""
WSGI = f"""
import os
from flask import Flask, Response
from openai import OpenAI
{AGENT}
client = OpenAI()
app = Flask("app")

@app.get("/<number>")
def chat(number):
    client.chat.completions.create(**asked(number, "plan"))
    def answer():
        for chunk in client.chat.completions.create(**asked(number, "answer", stream=True)):
            yield text(chunk)
    return Response(answer(), headers={{"pid": str(os.getpid())}})
"""
TASKS = f"""
import os
from celery import Celery
from openai import OpenAI
{AGENT}
app = Celery("app")
app.config_from_object("settings")
client = OpenAI()

@app.task(name="chat")
def chat(number):
    client.chat.completions.create(**asked(number, "plan"))
    for chunk in client.chat.completions.create(**asked(number, "answer", stream=True)):
        text(chunk)
    return os.getpid()
"""

OF_THE_PROCESS = ("question-7000-up", "question-7000-down")
"""What an ASGI application asks when it starts and when it stops."""
WAYS = ("opentelemetry-instrument", "instrument()")


@dataclass(frozen=True)
class Answer:
    """What a client got: the process that served it, and the whole body."""

    pid: int
    body: str


@dataclass
class Deployed:
    """A server that runs.

    Attributes:
        process: The one that was started: for most servers a supervisor.
        port: Where it listens.
        state: Its state directory.
        folder: Where `app.py` lies.
        log: What it said, once it has ended.
    """

    process: "subprocess.Popen[str]"
    port: int
    state: Path
    folder: Path
    log: str = ""
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def get(self, number: Any) -> Answer:
        """One request, to the end of its body."""
        connection, response = self.begun(number)
        try:
            return Answer(int(response.headers["pid"]), response.read().decode())
        finally:
            connection.close()

    def begun(self, number: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """One request whose body is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        self._open.append(connection)
        connection.request("GET", f"/{number}")
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return connection, response

    def at_once(self, clients: int, first: int = 0) -> list[Answer]:
        """That many clients together, numbered from `first`."""
        together = Barrier(clients)

        def client(number: int) -> Answer:
            together.wait()
            return self.get(number)

        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(client, range(first, first + clients)))

    def stop(self) -> int:
        """Sends SIGTERM and waits for the end; its exit code. What it said must hold no traceback and not our name."""
        if self.process.poll() is None:
            self.process.terminate()
        assert self.process.stdout is not None
        self.log = self.process.stdout.read()
        self.process.wait(PATIENCE_S)
        assert not re.search("Traceback|amfs.otel", self.log), self.log
        return self.process.returncode

    def decisions(self) -> list[Spooled]:
        """What it recorded."""
        return [one for one in spooled(self.state) if one.kind == "decision"]


@contextlib.contextmanager
def deployed(
    command: Sequence[str],
    app: str,
    folder: Path,
    model: ModelServer,
    way: str,
    *,
    python: Path = Path(sys.executable),
    **settings: str,
) -> Iterator[Deployed]:
    """Runs `command`, a server's module and its arguments, over `app`; killed at the end if it still runs.

    Args:
        command: `{fd}` stands for the number of the listening socket.
        app: Text of `app.py`.
        folder: Where it is written, and where the state directory is made.
        model: What `OPENAI_BASE_URL` names.
        way: One of `WAYS`.
        python: The interpreter.
        **settings: Further environment variables.
    """
    state = folder / "state"
    first = "import amfs_otel\namfs_otel.instrument()\n" if way == "instrument()" else ""
    (folder / "app.py").write_text(first + app)
    under = [str(python.parent / "opentelemetry-instrument")] if way == "opentelemetry-instrument" else []
    # gunicorn keeps a socket in its user's home.
    told = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "any", "HOME": str(folder)}
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening:
        port, fd = listening.getsockname()[1], listening.fileno()
        process = subprocess.Popen(
            [*under, str(python), "-m", *(word.format(fd=fd) for word in command)],
            env=environment(state, **told, AMFS_OTEL_LEDGER_CONTENT="all", **settings),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[fd],
            start_new_session=True,
        )
    server = Deployed(process, port, state, folder)
    try:
        yield server
    finally:
        for connection in server._open:
            connection.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.communicate(timeout=PATIENCE_S)


def questions(one: Spooled) -> tuple[str, ...]:
    """What the model calls of a decision asked."""
    calls = [event for event in one.facts["events"] if event["kind"] == "llm_call"]
    return tuple(re.findall(r"question-\d+-[a-z]+", " ".join(call["input_messages"] for call in calls)))


def check_one_trace_each(server: Deployed, requests: Iterable[int], lifespans: int = 0) -> None:
    """Every request is one complete trace with its two calls; nothing is left open, mixed, lost or doubled.

    Args:
        server: It has ended.
        requests: Their numbers.
        lifespans: How many processes served the ASGI application; each is one more trace, that of its process.
    """
    expected = {(f"question-{n}-plan", f"question-{n}-answer"): 1 for n in requests}
    whole = {OF_THE_PROCESS: lifespans} if lifespans else {}
    traces = server.decisions()
    assert Counter(questions(one) for one in traces) == {**expected, **whole}
    for one in traces:
        assert one.facts["status"] == "complete"
        by = ("sigterm", "exit") if questions(one) == OF_THE_PROCESS else ("session_end",)
        assert one.facts["closed_by"] in by
    assert left(server.state) == []


def journaling(state: Path, destination: str = "local") -> dict[int, int]:
    """How many model calls are in the journals of each process, by its id."""
    directory, calls = StateDirectory(state), dict[int, set[int]]()
    for segment in list_segments(directory, destination):
        if segment.stream == "journal":
            for frame in read_frames(segment.path, directory.spool_key()):
                assert isinstance(frame, Frame), frame
                item = decoded(frame.payload)
                if isinstance(item, EventPrepared):
                    calls.setdefault(segment.writer.pid, set()).add(item.event.id)
    return {pid: len(found) for pid, found in calls.items()}


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits for something in another process that sends no event."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)

"""What rows 18 and 19 of the peers' faults are tried with, in memory and in a database: secrets and odd values."""

import logging
from typing import Any

import numpy as np
import pytest
from anthropic import Anthropic
from langchain_core.tools import tool
from openai import OpenAI

from amfs_otel.demo.model_server import ModelServer
from amfs_otel.demo.script import Failure, Reply, ToolCall
from tests.instrumentation import anthropic_calls, openai_calls

SECRET = "canary-7Q2"
"""No form of a key, which masking would find: policy alone keeps it back."""

IMAGE = "QUJD" * 2_000_000
"""8 MB of base64."""


@tool
def echo(value: Any) -> Any:
    """Says it again."""
    return value


@tool
def boom(value: str) -> str:
    """Fails with what it was given."""
    raise ValueError(f"no {value}")


@tool
def odd(value: Any) -> Any:
    """Gives what JSON has no form for."""
    cycle: list[Any] = [float("nan"), 2**63, "\ud800", b"\x00\xff", np.array([[1.5, np.nan], [np.inf, 0.0]])]
    cycle += [np.float32(0.5), np.arange(3), np.zeros(12_000_000), np.array(["\ud800", None], dtype=object)]
    cycle.append(cycle)
    return cycle


def secret_calls(library: str, server: ModelServer) -> None:
    """A secret in prompt, answer, tool's arguments and result, metadata, header, API key, and texts of exceptions."""
    said: Any = [{"role": "user", "content": SECRET}]
    asked = ToolCall("call_1", "echo", f'{{"value": "{SECRET}"}}')
    server.queue(
        Reply(text=f"said {SECRET}"),
        Reply(tool_calls=(asked,)),
        Reply(failure=Failure(400, f"bad {SECRET}", "invalid_request_error")),
    )
    more: Any = {"messages": said, "extra_headers": {"x-mine": SECRET}}
    key = f"k-{SECRET}"
    if library == "openai":
        with OpenAI(base_url=server.base_url, api_key=key, max_retries=0) as client:
            _three(lambda: openai_calls.ask(client, **more, metadata={"m": SECRET}))
    else:
        with Anthropic(base_url=server.origin, api_key=key, max_retries=0) as client:
            _three(lambda: anthropic_calls.ask(client, **more, metadata={"user_id": "u"}, system=SECRET))
    assert echo.invoke({"value": SECRET}) == SECRET
    with pytest.raises(ValueError, match=SECRET):
        boom.invoke({"value": SECRET})
    logging.getLogger("of.the.application").debug("it goes on")


def _three(ask: Any) -> None:
    assert SECRET in str(ask())
    assert SECRET in str(ask())
    with pytest.raises(Exception, match=SECRET):
        ask()


def odd_calls(library: str, server: ModelServer) -> None:
    """An image of 8 MB in a prompt; a tool whose result JSON has no form for, numpy's values among it."""
    if library == "openai":
        part: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + IMAGE}}
        with OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            openai_calls.ask(client, messages=[{"role": "user", "content": [part]}])
    else:
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        part = {"type": "image", "source": source}
        with Anthropic(base_url=server.origin, api_key="k", max_retries=0) as client:
            anthropic_calls.ask(client, messages=[{"role": "user", "content": [part]}])
    given = odd.invoke({"value": float("inf")})
    assert given[-1] is given

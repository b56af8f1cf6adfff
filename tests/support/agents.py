"""Ordinary agents as programs, each without a line of instrumentation, and what must come of them whichever way they run.

`OPENAI_BASE_URL` names the model. They run on the oldest supported releases of what they use as on the newest.
"""

from typing import Any

from amfs_otel.demo.script import Reply, ToolCall

BARE_LOOP = """
import json, os
from openai import OpenAI

def look_up(order):
    return "order " + order + " is packed"

def weigh(parcel):
    return parcel + " weighs 2 kg"

def described(name, parameter):
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}

tools = [described("look_up", "order"), described("weigh", "parcel")]
messages = [{"role": "user", "content": "Can order 7 leave?"}]
client = OpenAI(base_url=os.environ["OPENAI_BASE_URL"])
for turn in range(3):
    reply = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=tools)
    answer = reply.choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    for call in answer.tool_calls or ():
        found = {"look_up": look_up, "weigh": weigh}[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
print(answer.content)
"""
"""Three model calls and two plain functions that the model asks for."""
BARE_LOOP_REPLIES = (
    Reply(tool_calls=(ToolCall("call_a", "look_up", '{"order": "7"}'),)),
    Reply(tool_calls=(ToolCall("call_b", "weigh", '{"parcel": "p-7"}'),)),
    Reply(text="It can leave."),
)

REMEMBERING = """
from pathlib import Path
from amfs import AgentMemory, OutcomeType
from amfs_filesystem import FilesystemAdapter

def memory(agent):
    return AgentMemory(agent, adapter=FilesystemAdapter(Path("memory"), "default"))

with memory("teacher") as teacher:
    teacher.write("shop", "rule", {"limit": 100}, confidence=0.8)
mem = memory("buyer")
mem.read("shop", "rule")
mem.search(entity_path="shop")
mem.record_context("price", "90 EUR", source="shop API")
mem.write("shop", "bought", "one lamp")
mem.commit_outcome("BUY-1", OutcomeType.SUCCESS)
mem.close()
"""
"""Two handles of AMFS, one after the other; the second decides and reports an outcome."""

_VOLATILE = frozenset(
    {"id", "seq", "start_us", "end_us", "recorded_us", "trace", "span", "parent", "server_port", "response_id"}
)


def steps_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a trace without what differs from run to run."""
    return [{name: value for name, value in event.items() if name not in _VOLATILE} for event in facts["events"]]

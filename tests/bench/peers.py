"""Other instrumentations of openai beside us, each in an environment of its own."""

from __future__ import annotations

from tests.bench.adapters import PEERS
from tests.bench.beside import BEST, OFF, ON, SHARE, US, Costs, all_measured, cell, title
from tests.bench.environments import pins
from tests.bench.report import TIMES, Effort, Figure, Section

_HEADINGS = ["in floors", "chat off", "on", "50 at once off", "on", "per chunk off", "on", "OTLP bytes off", "on"]


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("openai, beside other instrumentations")
    rounds = effort.of(6, 2)
    workloads = {
        "chat": (rounds, effort.of(80, 30)),
        "fifty_at_once": (rounds, effort.of(6, 2)),
        "stream_short": (rounds, effort.of(20, 6)),
        "stream_long": (rounds, effort.of(10, 4)),
    }
    found = all_measured(section, "openai", workloads, effort)
    section.tables.append([_HEADINGS, *([title(name), *map(cell, _row(costs))] for name, costs in found.items())])
    if BEST in found:
        for what, key in (("chat, content off", OFF), ("chat, content on", ON)):
            share = found[US].over["chat"][key] / found[BEST].over["chat"][key]
            section.figures.append(Figure(f"{what}, of {PEERS[BEST].title}", share, TIMES, SHARE))
    if effort.peers:
        named = "; ".join(f"{PEERS[name].title}: {pins(name)}" for name in PEERS)
        section.remarks.append(
            f"What was compared, each with our openai and anthropic unless it refuses them. {named}."
        )
    section.remarks.append(
        "Each takes turns with an uninstrumented process in its own environment, and we with OpenTelemetry genai. "
        "\u201con\u201d is message content on spans; Logfire has no switch for it. We record the decision trace besides."
    )
    return section


def _row(costs: Costs) -> list[float]:
    chat, fifty = costs.over["chat"], costs.over["fifty_at_once"]
    chunks = [costs.chunk("stream_short", "stream_long", key) for key in (OFF, ON)]
    return [chat[OFF], chat[ON], fifty[OFF], fifty[ON], *chunks, costs.sent[OFF][0], costs.sent[ON][0]]

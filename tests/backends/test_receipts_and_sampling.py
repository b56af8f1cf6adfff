"""collector-config/collector.yaml between agents and Jaeger: what the tail sampler decides, and what never meets it."""

from __future__ import annotations

import math
import time
import zlib
from pathlib import Path

import pytest
import yaml

from tests.backends.conftest import CollectorFactory
from tests.backends.servers import CONFIGURATIONS, Collector, Jaeger, free_ports, jaeger_server, wait_until
from tests.backends.spans import AGENT_SPANS, SentTrace, send_agent_trace, send_child, send_receipts, tracer_to

pytestmark = pytest.mark.backends

SHARE = 0.2


def settings_for(jaeger: Jaeger, decision_wait_s: int = 2) -> dict[str, str]:
    return {
        "AMFS_COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_grpc.removeprefix("http://"),
        "AMFS_COLLECTOR_DECISION_WAIT": f"{decision_wait_s}s",
        "AMFS_COLLECTOR_KEEP_PERCENT": f"{SHARE * 100:g}",
    }


def send_agents(collector: Collector, service: str, count: int, *, seed: int, failed: bool = False) -> list[SentTrace]:
    with tracer_to(collector.otlp_http, service, seed) as tracer:
        return [send_agent_trace(tracer, failed=failed) for _ in range(count)]


def wait_for_decisions(jaeger: Jaeger, collector: Collector, service: str) -> None:
    """Return when all traces sent before have been decided: a trace sent after them has been, and was kept."""
    (last,) = send_agents(collector, f"{service}-last", 1, seed=zlib.crc32(service.encode()), failed=True)
    jaeger.await_trace(last.trace_id)


def receipts_of(jaeger: Jaeger, sent: list[SentTrace]) -> dict[str, int]:
    """How many receipts Jaeger holds of each trace that was sent, with the right parent."""
    found: dict[str, int] = {}
    for one in sent:
        trace = jaeger.api.trace(one.trace_id)
        receipts = trace.named("amfs.record") if trace else []
        assert all(receipt.parent_id == f"{one.root.span_id:016x}" for receipt in receipts)
        found[one.trace_id] = len(receipts)
    return found


def kept_traces(jaeger: Jaeger, service: str) -> dict[str, list[str]]:
    """Names of the agent's spans by trace id, for each of its traces that Jaeger holds."""
    traces = jaeger.api.traces(service)
    return {trace.trace_id: sorted(span.name for span in trace.spans if span.service == service) for trace in traces}


def binomial_tail(at_least: int, trials: int, share: float) -> float:
    """The probability of `at_least` or more successes."""
    return sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(at_least, trials + 1))


def test_all_receipts_arrive_and_the_share_stays(jaeger: Jaeger, collector: CollectorFactory) -> None:
    decision_wait_s = 8
    running = collector(**settings_for(jaeger, decision_wait_s))
    started = time.monotonic()
    sent = send_agents(running, "sampled-agent", 100, seed=1)
    failed = send_agents(running, "failed-agent", 10, seed=2, failed=True)
    early, late = sent[:50] + failed[:5], sent[50:] + failed[5:]
    send_receipts(running.otlp_http, early)
    assert time.monotonic() - started < decision_wait_s, "this machine was too slow to send before the decision"
    wait_for_decisions(jaeger, running, "sampled-agent")
    send_receipts(running.otlp_http, late)

    everything = sent + failed
    wait_until(lambda: all(receipts_of(jaeger, everything).values()), "every receipt")
    assert set(receipts_of(jaeger, everything).values()) == {1}

    kept = kept_traces(jaeger, "sampled-agent")
    assert kept.keys() <= {one.trace_id for one in sent}
    assert all(names == sorted(AGENT_SPANS) for names in kept.values())
    assert binomial_tail(len(kept), 100, SHARE) > 1e-4, f"{len(kept)} of 100 traces were kept: too many for {SHARE:.0%}"
    assert binomial_tail(100 - len(kept), 100, 1 - SHARE) > 1e-4, f"only {len(kept)} of 100 traces were kept"
    assert kept_traces(jaeger, "failed-agent").keys() == {one.trace_id for one in failed}


def test_late_agent_spans_follow_the_decision(jaeger: Jaeger, collector: CollectorFactory) -> None:
    running = collector(**settings_for(jaeger))
    sent = send_agents(running, "slow-agent", 40, seed=3)
    wait_for_decisions(jaeger, running, "slow-agent")
    kept = kept_traces(jaeger, "slow-agent").keys()
    assert 0 < len(kept) < 40
    with tracer_to(running.otlp_http, "slow-agent") as tracer:
        for one in sent:
            send_child(tracer, one.root, "chat late")
    wait_for_decisions(jaeger, running, "slow-agent again")

    late = {trace for trace, names in kept_traces(jaeger, "slow-agent").items() if "chat late" in names}
    assert late == kept


def test_only_receipts_pass_the_sampler_by(jaeger: Jaeger, collector: CollectorFactory) -> None:
    """A span with a receipt's name from another service, or of our service with another name, is sampled."""
    running = collector(**settings_for(jaeger) | {"AMFS_COLLECTOR_KEEP_PERCENT": "0"})
    sent = send_agents(running, "imitating-agent", 3, seed=4)
    with tracer_to(running.otlp_http, "imitating-agent") as tracer:
        send_child(tracer, sent[0].root, "amfs.record")
    send_receipts(running.otlp_http, sent[1:2], name="psycopg")
    send_receipts(running.otlp_http, sent[2:3], name="amfs.checkpoint")
    wait_for_decisions(jaeger, running, "imitating-agent")

    checkpoint = jaeger.await_trace(sent[2].trace_id)
    assert [span.name for span in checkpoint.spans] == ["amfs.checkpoint"]
    assert jaeger.api.trace(sent[0].trace_id) is None
    assert jaeger.api.trace(sent[1].trace_id) is None


def test_in_the_sampler_receipts_would_be_lost(jaeger: Jaeger, collector: CollectorFactory, tmp_path: Path) -> None:
    """Why they have a pipeline of their own: the same file with one pipeline loses the receipts of unkept traces."""
    configuration = yaml.safe_load((CONFIGURATIONS / "collector.yaml").read_text())
    pipelines = configuration["service"]["pipelines"]
    del pipelines["traces/receipts"]
    pipelines["traces/in"]["exporters"].remove("forward/receipts")
    pipelines["traces/agents"]["processors"].remove("filter/agents")
    naive = tmp_path / "naive.yaml"
    naive.write_text(yaml.safe_dump(configuration))
    running = collector(configuration=naive, **settings_for(jaeger))
    sent = send_agents(running, "naive-agent", 40, seed=5)
    send_receipts(running.otlp_http, sent)
    wait_for_decisions(jaeger, running, "naive-agent")

    arrived = {trace for trace, count in receipts_of(jaeger, sent).items() if count}
    assert arrived == set(kept_traces(jaeger, "naive-agent"))
    assert 0 < len(arrived) < 40


def test_receipts_wait_for_a_backend_that_is_down(jaeger: Jaeger, collector: CollectorFactory, tmp_path: Path) -> None:
    """Receipts are sent once; the Collector keeps trying until Jaeger, started late, takes them."""
    (port,) = free_ports(1)
    running = collector(**settings_for(jaeger) | {"AMFS_COLLECTOR_TRACES_ENDPOINT": f"127.0.0.1:{port}"})
    sent = send_agents(running, "early-agent", 5, seed=6)
    send_receipts(running.otlp_http, sent)
    wait_until(lambda: "Exporting failed" in running.log.read_text(), "the first failed try")
    with jaeger_server(tmp_path / "late.log", otlp_grpc_port=port) as late:
        wait_until(lambda: all(receipts_of(late, sent).values()), "every receipt", 60)
        assert set(receipts_of(late, sent).values()) == {1}

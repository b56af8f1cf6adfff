"""Each name that we emit stands in the table of facts, with its unit and buckets, or lies under `amfs.`."""

import pytest

from amfs_otel import semconv
from tests.support.oracle import reference

ALL = {name: value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
KEYS = {name: value for name, value in ALL.items() if name.startswith(("GEN_AI_", "OPENAI_", "SERVER_", "EXCEPTION_"))}
PROFILE = reference()["profiles"][semconv.PROFILE]
OLDER = reference()["profiles"]["genai-2026-08-03"]


def test_the_profile_is_the_default_one():
    assert reference()["default_profile"] == semconv.PROFILE


def test_every_key_is_registered():
    assert {value for value in KEYS.values() if value not in reference()["attributes"]} == set()
    assert len(set(KEYS.values())) == len(KEYS)


def test_no_key_is_legacy():
    assert not set(KEYS.values()) & set(reference()["legacy"]["attributes"])


def test_ours_lie_under_our_prefix_and_are_distinct():
    ours = [value for name, value in ALL.items() if name.startswith("AMFS_")]
    assert all(value.startswith("amfs.") for value in ours)
    assert len(set(ours)) == len(ours)


def test_operations_are_known():
    known = reference()["attributes"]["gen_ai.operation.name"]["enum"]
    used = {value for name, value in ALL.items() if name.startswith("OPERATION_")}
    assert used <= set(known)
    assert used >= semconv.INFERENCE_OPERATIONS | semconv.MEMORY_OPERATIONS


def test_content_attributes_are_the_sensitive_ones():
    table = reference()["attributes"]
    sensitive = {key for key, entry in table.items() if entry.get("sensitive") and "key_pattern" not in entry}
    assert sensitive == semconv.CONTENT_ATTRIBUTES


def test_dual_emission_uses_the_legacy_names_of_the_table():
    legacy = reference()["legacy"]["attributes"]
    assert {old: legacy[old]["replaced_by"] for old in semconv.LEGACY_ATTRIBUTES.values()} == {
        old: new for new, old in semconv.LEGACY_ATTRIBUTES.items()
    }


@pytest.mark.parametrize("metric", semconv.GEN_AI_METRICS, ids=lambda metric: metric.name)
def test_metrics_follow_the_table(metric):
    entries = OLDER["metrics"] if metric.legacy else PROFILE["metrics"]
    entry = next(entry for entry in entries if entry["name"] == metric.name)
    assert (metric.instrument, metric.unit) == (entry["instrument"], entry["unit"])
    assert metric.buckets == tuple(float(bound) for bound in entry.get("bucket_boundaries") or ())
    assert metric.legacy == (
        semconv.PROFILE in reference()["legacy"]["metrics"].get(metric.name, {}).get("applies_to", ())
    )


def test_health_metrics_are_ours():
    assert all(metric.name.startswith("amfs.") for metric in semconv.HEALTH_METRICS)
    assert {metric.instrument for metric in semconv.HEALTH_METRICS} == {"observable_counter", "observable_gauge"}

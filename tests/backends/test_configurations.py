"""Every file of collector-config/ as far as its program was built; what is only parsed is named here and in its README."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.backends.servers import CONFIGURATIONS

COLLECTOR_FILES = ("collector.yaml", "datadog.yaml", "honeycomb.yaml")
RUN_ELSEWHERE = ("jaeger.yaml", "prometheus.yaml", "alerts.yaml")
PARSED_ONLY = ("tempo.yaml", "compose.yaml")


def parsed(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGURATIONS / name).read_text())


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), env={}, capture_output=True, text=True, timeout=60, check=False)


def test_every_file_is_accounted_for() -> None:
    files = {path.name for path in CONFIGURATIONS.glob("*.yaml")}
    assert files == {*COLLECTOR_FILES, *RUN_ELSEWHERE, *PARSED_ONLY}
    readme = (CONFIGURATIONS / "README.md").read_text()
    assert [name for name in files if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", PARSED_ONLY)
def test_parses(name: str) -> None:
    assert parsed(name)


def test_compose_mounts_what_exists_and_sets_what_is_read() -> None:
    services = parsed("compose.yaml")["services"]
    for service in services.values():
        mounts = [volume.split(":")[0] for volume in service["volumes"] if volume.startswith("./")]
        assert mounts
        text = "".join((CONFIGURATIONS / mount).read_text() for mount in mounts)
        assert [name for name in service.get("environment", ()) if f"{name}:-" not in text] == []
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", COLLECTOR_FILES)
def test_every_setting_is_in_the_readme(name: str) -> None:
    readme = (CONFIGURATIONS / "README.md").read_text()
    used = {part.split(":-")[0].split("}")[0] for part in (CONFIGURATIONS / name).read_text().split("${env:")[1:]}
    assert used
    assert [
        each for each in used if each not in readme and f"`_{each.removeprefix('AMFS_COLLECTOR_')}`" not in readme
    ] == []


@pytest.mark.parametrize("name", ["datadog.yaml", "honeycomb.yaml"])
def test_vendor_files_split_and_sample_like_collector_yaml(name: str) -> None:
    """One file for one tool means the same text three times; this keeps them the same."""
    vendor, ours = parsed(name), parsed("collector.yaml")
    assert {key: vendor[key] for key in ("extensions", "receivers", "processors")} == {
        key: ours[key] for key in ("extensions", "receivers", "processors")
    }
    for pipeline in ("traces/in", "traces/agents", "traces/receipts"):
        for key in ("receivers", "processors"):
            assert vendor["service"]["pipelines"][pipeline][key] == ours["service"]["pipelines"][pipeline][key]


@pytest.mark.backends
@pytest.mark.parametrize("name", COLLECTOR_FILES)
def test_collector_validates(otelcol: Path, name: str) -> None:
    done = run(otelcol, "validate", "--config", CONFIGURATIONS / name)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.backends
def test_validate_can_fail(otelcol: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text((CONFIGURATIONS / "collector.yaml").read_text().replace("span.name ==", "span.nom =="))
    done = run(otelcol, "validate", "--config", broken)
    assert done.returncode != 0
    assert "nom" in done.stderr


@pytest.mark.backends
def test_alert_rules_are_valid(promtool: Path) -> None:
    rules = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", CONFIGURATIONS / "alerts.yaml")
    assert rules.returncode == 0, rules.stdout + rules.stderr
    whole = run(promtool, "check", "config", CONFIGURATIONS / "prometheus.yaml")
    assert whole.returncode == 0, whole.stdout + whole.stderr


@pytest.mark.backends
def test_alerts_fire_for_their_causes_only(promtool: Path, tmp_path: Path) -> None:
    cases = parsed_cases()
    cases["rule_files"] = [str(CONFIGURATIONS / "alerts.yaml")]
    filled = tmp_path / "alerts_test.yaml"
    filled.write_text(yaml.safe_dump(cases))
    done = run(promtool, "test", "rules", filled)
    assert done.returncode == 0, done.stdout + done.stderr


def parsed_cases() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())


def test_every_alert_has_a_case() -> None:
    alerts = {rule["alert"] for group in parsed("alerts.yaml")["groups"] for rule in group["rules"]}
    cases = str(parsed_cases())
    assert [alert for alert in alerts if alert not in cases] == []

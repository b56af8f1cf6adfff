"""Refused records: kept whole, named by id and reason, once."""

import json
import stat
from pathlib import Path

import pytest

from amfs_otel.errors import SpoolError
from amfs_otel.spool import StateDirectory, quarantine, quarantined, usage_bytes

ID = bytes(range(16))


def test_a_refused_record_is_kept_with_its_reason(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    path = quarantine(
        state, b"payload", "store_conflict", record_id=ID, destination="local", detail="other bytes under this id"
    )
    assert path.name == f"{ID.hex()}.store_conflict.frame"
    assert path.read_bytes() == b"payload"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (entry,) = quarantined(state)
    assert entry.path == path
    assert {k: entry.facts[k] for k in ("record", "reason", "destination", "detail", "bytes")} == {
        "record": ID.hex(),
        "reason": "store_conflict",
        "destination": "local",
        "detail": "other bytes under this id",
        "bytes": 7,
    }
    assert "payload" not in json.dumps(dict(entry.facts))


def test_the_same_again_is_one_file_and_other_bytes_another(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    first = quarantine(state, b"one", "refused", record_id=ID)
    assert quarantine(state, b"one", "refused", record_id=ID) == first
    second = quarantine(state, b"two", "refused", record_id=ID)
    assert quarantine(state, b"two", "refused", record_id=ID) == second
    assert sorted(q.path.read_bytes() for q in quarantined(state)) == [b"one", b"two"]


def test_a_reason_cannot_lead_elsewhere_and_no_id_is_needed(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    path = quarantine(state, b"x", "../../etc/pass wd")
    assert path.parent == state.quarantine
    assert path.name.endswith(".-etc-pass-wd.frame")
    assert quarantined(state)[0].facts["record"] is None


def test_it_counts_towards_the_limit_and_a_lost_sidecar_does_not_hide_it(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    path = quarantine(state, b"x" * 1000, "refused", record_id=ID)
    assert usage_bytes(state) >= 1000
    path.with_suffix(".json").unlink()
    assert [dict(q.facts) for q in quarantined(state)] == [{}]


def test_where_nothing_can_be_kept_the_caller_hears_it(tmp_path: Path) -> None:
    (tmp_path / "quarantine").write_text("a file")
    with pytest.raises(SpoolError):
        quarantine(StateDirectory(tmp_path), b"x", "refused", record_id=ID)


def test_no_directory_no_quarantine(tmp_path: Path) -> None:
    assert quarantined(StateDirectory(tmp_path / "none")) == []

"""Where a trace comes from: the facts about this process that each skeleton carries."""

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from amfs_otel import instrumentor
from amfs_otel.settings import Settings

_STARTED_US = time.time_ns() // 1000


def origin_facts(settings: Settings) -> Mapping[str, Any]:
    """Service, program, version, environment, host, process and the libraries' versions, as known now."""
    facts: dict[str, Any] = {
        "service": settings.service_name or settings.program,
        "program": settings.program,
        "host": socket.gethostname(),
        "process_id": os.getpid(),
        "started_us": _STARTED_US,
        "libraries": {state.name: state.version for state in instrumentor.states() if state.version is not None},
    }
    if settings.service_version is not None:
        facts["version"] = settings.service_version
    if settings.environment is not None:
        facts["environment"] = settings.environment
    return facts

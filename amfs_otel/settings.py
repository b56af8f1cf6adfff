"""The settings of one process: read once from the environment, frozen, passed down.

This module is the only reader of `os.environ`. Arguments win over the environment, the environment over defaults. A
value that cannot be used becomes one entry of `Settings.problems` and the default; nothing here ever raises, because
the process that reads it is somebody else's agent. The CLI turns problems into errors.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from amfs_otel import environment_variables as env

_T = TypeVar("_T")

DEFAULT_LOG = "default"
IDLE_TIMEOUT_S = 1800.0
INFERRED_IDLE_TIMEOUT_S = 300.0
SPOOL_LIMIT_BYTES = 1 << 30


class LedgerContent(Enum):
    """Which texts a decision trace keeps."""

    NONE = "none"
    DECISION = "decision"
    ALL = "all"


class SpanContent(Enum):
    """Where message content may go on the OpenTelemetry side; no log events are made, whatever it says of them."""

    NO_CONTENT = "NO_CONTENT"
    SPAN_ONLY = "SPAN_ONLY"
    EVENT_ONLY = "EVENT_ONLY"
    SPAN_AND_EVENT = "SPAN_AND_EVENT"

    @property
    def on_spans(self) -> bool:
        """Whether span attributes may hold content."""
        return self in (SpanContent.SPAN_ONLY, SpanContent.SPAN_AND_EVENT)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. `None` means "not set"; times are seconds, sizes bytes."""

    state_dir: Path
    log: str = DEFAULT_LOG
    dsn: str | None = field(default=None, repr=False)
    dsn_is_fallback: bool = False
    signing_key: str | None = field(default=None, repr=False)
    signing_key_file: Path | None = None
    log_key: str | None = field(default=None, repr=False)
    log_key_file: Path | None = None
    ledger_content: LedgerContent = LedgerContent.DECISION
    span_content: SpanContent = SpanContent.NO_CONTENT
    mask_patterns_file: Path | None = None
    agent_id: str | None = None
    service_name: str | None = None
    service_version: str | None = None
    environment: str | None = None
    program: str = "python"
    receipts: bool = True
    idle_timeout_s: float | None = None
    exit_timeout_s: float = 2.0
    sigterm: bool = True
    baggage_hosts: frozenset[str] = frozenset()
    trust_baggage: bool = False
    semconv_dual: bool = False
    answer_explain: bool = False
    disabled: bool = False
    sdk_disabled: bool = False
    disabled_instrumentations: frozenset[str] = frozenset()
    spool_limit_bytes: int = SPOOL_LIMIT_BYTES
    postgres_bin: Path | None = None
    otlp_endpoint: str | None = None
    otlp_endpoint_is_exact: bool = False
    otlp_protocol: str = "grpc"
    traces_exporter: str | None = None
    span_attribute_limit: int | None = None
    problems: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Reads `environ` (default: the process's). Never raises."""
        return _settings_from(_Reader(os.environ if environ is None else environ))

    @property
    def default_agent(self) -> str:
        """The agent's name where neither code, memory handle nor framework gives one."""
        return self.agent_id or self.service_name or self.program

    @property
    def idle_s(self) -> float:
        """Seconds without an event after which an ordinary window closes."""
        return IDLE_TIMEOUT_S if self.idle_timeout_s is None else self.idle_timeout_s

    @property
    def inferred_idle_s(self) -> float:
        """Seconds without an event after which an inferred window closes."""
        return INFERRED_IDLE_TIMEOUT_S if self.idle_timeout_s is None else self.idle_timeout_s

    def library_disabled(self, name: str) -> bool:
        """Whether `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS` names our patch of library `name` (`amfs_<name>`) or all."""
        return bool({"*", "amfs", f"amfs_{name}"} & self.disabled_instrumentations)


class _Reader:
    """Reads and parses variables, collecting what cannot be used."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[str] = []

    def text(self, *names: str) -> str | None:
        for name in names:
            value = self.environ.get(name, "").strip()
            if value:
                return value
        return None

    def parsed(self, name: str, parse: Callable[[str], _T], default: _T, wanted: str) -> _T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except ValueError:
            self.problems.append(f"{name}: cannot be used; expected {wanted}, got {value[:40]!r}. The default applies.")
            return default

    def switch(self, name: str, default: bool) -> bool:
        return self.parsed(name, _switch, default, "on or off")

    def path(self, name: str) -> Path | None:
        value = self.text(name)
        return Path(value).expanduser() if value else None

    def pairs(self, name: str) -> dict[str, str]:
        items = (item.partition("=") for item in (self.text(name) or "").split(","))
        return {key.strip(): value.strip() for key, _, value in items if value.strip()}

    def words(self, name: str) -> frozenset[str]:
        return frozenset(word for word in (self.text(name) or "").replace(" ", "").split(",") if word)


def _settings_from(read: _Reader) -> Settings:
    resource = read.pairs(env.OTEL_RESOURCE_ATTRIBUTES)
    dsn, fallback = read.text(env.AMFS_OTEL_DSN), read.text(env.AMFS_POSTGRES_DSN)
    return Settings(
        state_dir=read.path(env.AMFS_OTEL_STATE_DIR) or _default_state_dir(read),
        log=read.parsed(
            env.AMFS_OTEL_LOG,
            _log_name,
            DEFAULT_LOG,
            "1 to 64 letters, digits, '.', '_', '-', the first a letter or digit",
        ),
        dsn=dsn or fallback,
        dsn_is_fallback=dsn is None and fallback is not None,
        signing_key=read.text(env.AMFS_OTEL_SIGNING_KEY, env.AMFS_TRACE_SIGNING_KEY),
        signing_key_file=read.path(env.AMFS_OTEL_SIGNING_KEY_FILE),
        log_key=read.text(env.AMFS_OTEL_LOG_KEY),
        log_key_file=read.path(env.AMFS_OTEL_LOG_KEY_FILE),
        ledger_content=read.parsed(
            env.AMFS_OTEL_LEDGER_CONTENT,
            lambda v: LedgerContent(v.lower()),
            LedgerContent.DECISION,
            "none|decision|all",
        ),
        span_content=_span_content(read),
        mask_patterns_file=read.path(env.AMFS_OTEL_MASK_PATTERNS),
        agent_id=read.text(env.AMFS_OTEL_AGENT_ID),
        service_name=read.text(env.OTEL_SERVICE_NAME, env.AMFS_OTEL_SERVICE_NAME) or resource.get("service.name"),
        service_version=resource.get("service.version"),
        environment=resource.get("deployment.environment.name") or resource.get("deployment.environment"),
        program=_program_name(),
        receipts=read.switch(env.AMFS_OTEL_RECEIPTS, default=True),
        idle_timeout_s=read.parsed(env.AMFS_OTEL_IDLE_TIMEOUT, _positive, None, "seconds above 0"),
        exit_timeout_s=read.parsed(env.AMFS_OTEL_EXIT_TIMEOUT, _not_negative, 2.0, "seconds, 0 or more"),
        sigterm=read.switch(env.AMFS_OTEL_SIGTERM, default=True),
        baggage_hosts=read.words(env.AMFS_OTEL_BAGGAGE_HOSTS),
        trust_baggage=read.switch(env.AMFS_OTEL_TRUST_BAGGAGE, default=False),
        semconv_dual=read.switch(env.AMFS_OTEL_SEMCONV_DUAL, default=False),
        answer_explain=read.switch(env.AMFS_OTEL_ANSWER_EXPLAIN, default=False),
        disabled=read.switch(env.AMFS_OTEL_DISABLED, default=False),
        sdk_disabled=(read.text(env.OTEL_SDK_DISABLED) or "").lower() == "true",
        disabled_instrumentations=read.words(env.OTEL_PYTHON_DISABLED_INSTRUMENTATIONS),
        spool_limit_bytes=read.parsed(env.AMFS_OTEL_SPOOL_LIMIT, _size, SPOOL_LIMIT_BYTES, "bytes, 1 MiB or more"),
        postgres_bin=read.path(env.AMFS_OTEL_POSTGRES_BIN),
        otlp_endpoint=read.text(
            env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, env.OTEL_EXPORTER_OTLP_ENDPOINT, env.AMFS_OTEL_ENDPOINT
        ),
        otlp_endpoint_is_exact=read.text(env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) is not None,
        otlp_protocol=read.text(env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, env.OTEL_EXPORTER_OTLP_PROTOCOL) or "grpc",
        traces_exporter=read.text(env.OTEL_TRACES_EXPORTER),
        span_attribute_limit=read.parsed(env.OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT, _count, None, "a whole number"),
        problems=tuple(read.problems),
    )


def _default_state_dir(read: _Reader) -> Path:
    base = read.path("XDG_STATE_HOME")
    if base is not None and base.is_absolute():
        return base / "amfs-otel"
    home = read.environ.get("HOME") or "/nonexistent"
    return Path(home) / ".local" / "state" / "amfs-otel"


def _span_content(read: _Reader) -> SpanContent:
    name = env.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT
    value = (read.text(name) or "").upper()
    if value == "TRUE":
        read.problems.append(f"{name}: 'true' is the value of older packages; taken as SPAN_ONLY.")
        return SpanContent.SPAN_ONLY
    if value == "FALSE":
        return SpanContent.NO_CONTENT
    return read.parsed(
        name, lambda v: SpanContent(v.upper()), SpanContent.NO_CONTENT, "|".join(c.value for c in SpanContent)
    )


def _program_name() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    if not sys.argv or sys.argv[0] in ("", "-c", "-"):
        return "python"
    program = Path(sys.argv[0])
    # A process that was spawned by `python -m package` has its arguments, but not its `__spec__`.
    return program.parent.name if program.stem == "__main__" else program.stem


def _switch(value: str) -> bool:
    word = value.lower()
    if word in ("1", "true", "on", "yes"):
        return True
    if word in ("0", "false", "off", "no"):
        return False
    raise ValueError(value)


def _positive(value: str) -> float | None:
    number = float(value)
    if not number > 0:
        raise ValueError(value)
    return number


def _not_negative(value: str) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(value)
    return number


def _size(value: str) -> int:
    number = int(value)
    if number < 1 << 20:
        raise ValueError(value)
    return number


def _count(value: str) -> int | None:
    number = int(value)
    if number < 0:
        raise ValueError(value)
    return number


def _log_name(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError(value)
    return value

"""What holds for every run of the tests: a skip is either listed in the last lines of the run, or it fails the run."""

from collections import Counter

import pytest

from tests.support.not_run import PREFIX, not_run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--backends`, which `make test-backends` gives after it has built the programs."""
    parser.addoption("--backends", action="store_true", help="run the tests against a real Jaeger and Collector")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the skips of this run, in the process that reports it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipWatch(), "skip-watch")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the tests with real backends out unless they were asked for."""
    if item.get_closest_marker("backends") and not item.config.getoption("--backends"):
        not_run("against a real Jaeger and Collector; `make test-backends` does (needs Go >= 1.26)")


class SkipWatch:
    """Sorts the skips of a run: those that say why are listed, any other fails the run."""

    def __init__(self) -> None:
        self._not_run: Counter[str] = Counter()
        self._hidden: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in the outcome of a test's set-up, call or tear-down."""
        self._sort(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take in the outcome of a module's collection."""
        self._sort(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn a green run with hidden skips red."""
        if self._hidden and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was not run, as the last thing before the closing line."""
        for test in self._hidden:
            terminalreporter.write_line(f"hidden skip, fails the run: {test}", red=True)
        for reason, count in sorted(self._not_run.items()):
            terminalreporter.write_line(f"not run ({count}): {reason}", yellow=True)

    def _sort(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
        said, mark, why = reason.partition(PREFIX)
        if mark and said in ("", "Skipped: "):
            self._not_run[why] += 1
        else:
            self._hidden.append(f"{report.nodeid}: {reason}")

"""What every patch must hold, whatever it patches."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, cast

import pytest
import wrapt
from packaging.requirements import Requirement

from amfs_otel import capture, guard, instrumentor
from amfs_otel.instrumentor import PatchState, Wrapper
from amfs_otel.libraries import LIBRARIES, Library
from tests.instrumentation.contract import Call, contract_of
from tests.instrumentation.recording import Captured
from tests.support.not_run import not_run

LIBRARY = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


class Target(NamedTuple):
    """A hook of a patch and what it is applied to."""

    hook: str
    parent: Any
    attribute: str
    original: Any
    wrapper: Wrapper


def patch_of(library: Library) -> ModuleType:
    """The patch module; where its target is not installed, the current test ends as not run."""
    if importlib.util.find_spec(library.target.partition(".")[0]) is None:
        not_run(f"the patch of {library.name}; {library.distribution} is not installed here")
    return importlib.import_module(f"amfs_otel_instrumentation.{library.name}")


def all_hooks(library: Library) -> dict[str, Wrapper]:
    """What the patch wraps, at once and when its module is imported."""
    patch = patch_of(library)
    return {**patch.hooks, **getattr(patch, "hooks_when_imported", {})}


def targets_of(library: Library) -> Iterator[Target]:
    """The hooks that the installed version has; must be asked for before anything is patched."""
    wanted = all_hooks(library)
    importlib.import_module(library.target)
    for hook, wrapper in wanted.items():
        module, _, path = hook.partition(":")
        try:
            parent, attribute, found = wrapt.resolve_path(importlib.import_module(module), path.removesuffix("?"))
        except (ImportError, AttributeError):
            if not path.endswith("?"):
                raise
            continue
        yield Target(hook, parent, attribute, vars(parent).get(attribute, found), wrapper)


def state_of(library: Library) -> PatchState:
    return next(state for state in instrumentor.states() if state.name == library.name)


@LIBRARY
def test_it_says_what_it_needs(library: Library) -> None:
    requirement = Requirement(patch_of(library).requires)
    assert requirement.name == library.distribution
    assert {specifier.operator for specifier in requirement.specifier} >= {">=", "<"}
    assert patch_of(library).__doc__


@LIBRARY
def test_registering_it_imports_neither_target_nor_patch(library: Library) -> None:
    modules = (library.target.partition(".")[0], f"amfs_otel_instrumentation.{library.name}")
    program = (
        "import sys; from amfs_otel import instrumentor; instrumentor.instrument(); "
        f"print([name for name in {modules!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@LIBRARY
def test_every_hook_resolves_on_the_installed_version(library: Library, captured: Captured) -> None:
    targets = list(targets_of(library))
    instrumentor.instrument([library.name])
    state = state_of(library)
    assert (state.state, state.missing, state.foreign) == ("patched", [], [])
    assert all(isinstance(vars(t.parent)[t.attribute], wrapt.FunctionWrapper) for t in targets)


@LIBRARY
def test_twice_is_once_and_undoing_restores_identity(library: Library, captured: Captured) -> None:
    targets = list(targets_of(library))
    inherited = {t.hook: t.attribute not in vars(t.parent) for t in targets}
    for _ in range(2):
        instrumentor.instrument([library.name])
    for target in targets:
        ours = cast("Any", vars(target.parent)[target.attribute])
        assert ours.__wrapped__ is target.original
    instrumentor.uninstrument([library.name])
    for target in targets:
        assert (target.attribute not in vars(target.parent)) == inherited[target.hook]
        assert inspect.getattr_static(target.parent, target.attribute) is target.original
    instrumentor.instrument([library.name])
    assert state_of(library).state == "patched"


@LIBRARY
def test_a_missing_target_is_reported_and_the_rest_works(
    library: Library, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = list(targets_of(library))
    gone = next((t for t in targets if not t.hook.endswith("?") and t.attribute in vars(t.parent)), None)
    if gone is None:  # it wraps nothing, and uses what the library offers
        assert patch_of(library).listen
        return
    monkeypatch.delattr(gone.parent, gone.attribute)
    instrumentor.instrument([library.name])
    state = state_of(library)
    assert (state.state, state.missing) == ("partial", [gone.hook])
    rest = [t for t in targets if t is not gone]
    assert all(isinstance(vars(t.parent)[t.attribute], wrapt.FunctionWrapper) for t in rest)
    instrumentor.uninstrument([library.name])


def outcome_of(target: Target, answer: Callable[[], Any]) -> Any:
    """What the wrapper makes of a call that answers with `answer`, on an instance that tells our mappings nothing.

    Of a function that gives a stream as a generator, it is what that yields.
    """

    def plain(*_args: Any, **_kwargs: Any) -> Any:
        return answer()

    async def coroutine(*_args: Any, **_kwargs: Any) -> Any:
        return answer()

    def generator(*_args: Any, **_kwargs: Any) -> Iterator[Any]:
        yield answer()

    async def async_generator(*_args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
        yield answer()

    original = inspect.unwrap(target.original)
    if inspect.isgeneratorfunction(original):
        return next(target.wrapper(generator, object(), (), {}))
    if inspect.isasyncgenfunction(original):
        pending = anext(target.wrapper(async_generator, object(), (), {}))
    elif inspect.iscoroutinefunction(original):
        pending = target.wrapper(coroutine, object(), (), {})
    else:
        return target.wrapper(plain, object(), (), {})
    assert inspect.isawaitable(pending)
    with pytest.raises(StopIteration) as stopped:
        pending.__await__().__next__()
    return stopped.value.value


@pytest.mark.parametrize("broken", [False, True], ids=["mappings-as-they-are", "every-mapping-raises"])
@LIBRARY
def test_results_and_errors_pass_through_untouched(
    library: Library, broken: bool, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets, mappings = list(targets_of(library)), mappings_of(library)
    assert mappings
    for mapping in mappings if broken else ():
        break_mapping(mapping, monkeypatch)
    for target in targets:
        guard.reset()
        result, error = object(), KeyError("the library's own", target.hook)

        def raised(error: BaseException = error) -> Any:
            raise error

        assert outcome_of(target, lambda result=result: result) is result, target.hook
        with pytest.raises(KeyError) as caught:
            outcome_of(target, raised)
        assert caught.value is error, target.hook
        assert caught.value.args == ("the library's own", target.hook)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


# -- mappings that raise -------------------------------------------------------------------------------------------

ROUNDS = guard.LIMIT + 5
"""At two calls a round and more, these are 50 calls and more."""

CHUNKS = 16
"""More than the chunks of any stream here: one that is under way when its patch goes off is seen to its end."""

SLACK_S = 0.1
"""What the fastest of `ROUNDS` calls may take longer than without us on a busy machine; a wait, a retry takes longer."""


def mappings_of(library: Library) -> list[FunctionType]:
    """What of ours looks at the library's objects, or marks its requests, when a call is made."""
    patch_of(library)
    found: list[FunctionType] = []
    for place in contract_of(library).mappings or (library.name,):
        name, _, function = place.partition(":")
        module = importlib.import_module(name if "." in name else f"amfs_otel_instrumentation.{name}")
        if function:
            found.append(vars(module)[function])
            continue
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        classes = [vars(kind) for kind in own if inspect.isclass(kind)]
        for namespace in ({value.__name__: value for value in own if inspect.isfunction(value)}, *classes):
            found += [value for n, value in namespace.items() if inspect.isfunction(value) and not n.startswith("_")]
    return found


def _raises(*_args: Any, **_kwargs: Any) -> Any:
    raise ValueError("a mapping of ours")


def _raises_in_turn(*_args: Any, **_kwargs: Any) -> Any:
    raise ValueError("a mapping of ours")
    yield


def break_mapping(mapping: FunctionType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a function raise for whoever holds it and under whatever name, at a place of its own."""
    place = mapping.__code__
    broken = _raises_in_turn if inspect.isgeneratorfunction(mapping) else _raises
    code = broken.__code__.replace(co_filename=place.co_filename, co_firstlineno=place.co_firstlineno)
    monkeypatch.setattr(mapping, "__code__", code)


async def one_round(calls: Sequence[Call]) -> tuple[list[Any], list[float]]:
    """What every call comes to, result or exception, and how long it took, s."""
    outcomes: list[Any] = []
    times_s: list[float] = []
    for call in calls:
        started_s = time.perf_counter()
        try:
            outcome = await call()
        except Exception as error:
            outcome = (type(error), str(error))
        times_s.append(time.perf_counter() - started_s)
        outcomes.append(outcome)
    return outcomes, times_s


async def many_rounds(calls: Sequence[Call]) -> tuple[list[list[Any]], list[float]]:
    """What `ROUNDS` rounds come to, and how long the fastest of each call took, s."""
    rounds = [await one_round(calls) for _ in range(ROUNDS)]
    times_s = [min(times) for times in zip(*(times_s for _, times_s in rounds), strict=True)]
    return [outcomes for outcomes, _ in rounds], times_s


def shapes_of(captured: Captured) -> list[tuple[str, str | None, list[str]]]:
    """Kind, status and names of the fields of every event, in the order of their beginnings.

    Events of one round may change places: langgraph writes its checkpoints in threads.
    """
    events = sorted((event for trace in captured.close() for event in trace["events"]), key=lambda event: event["seq"])
    return [(event["kind"], event.get("status"), sorted(event)) for event in events]


@LIBRARY
async def test_a_mapping_that_raises_on_every_call_is_switched_off_and_the_application_sees_nothing(
    library: Library,
    captured_with: Callable[..., Captured],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each mapping that the library's calls reach, broken alone, after one round in which all was well."""
    mappings, name, connected = mappings_of(library), library.name, contract_of(library).calls
    capture.current_request.set(None)
    async with connected(request) as calls:
        (bare, *_), bare_times_s = await many_rounds(calls)
    assert isinstance(bare[-1], tuple)
    assert issubclass(bare[-1][0], Exception)
    captured = captured_with()
    instrumentor.instrument([name])
    async with connected(request) as calls:
        assert (await one_round(calls))[0] == bare
        assert ROUNDS * len(calls) >= 50
    healthy = shapes_of(captured)
    assert bool(healthy) is library.reports
    assert guard.counters() == {}

    reached: list[str] = []
    for mapping in mappings:
        guard.reset()
        caplog.clear()
        captured = captured_with()
        async with connected(request) as calls:
            assert (await one_round(calls))[0] == bare
            with monkeypatch.context() as broken:
                break_mapping(mapping, broken)
                outcomes = [(await one_round(calls))[0]]
                if not guard.counters():
                    continue
                more, times_s = await many_rounds(calls)
        where = mapping.__qualname__
        reached.append(where)
        assert all(outcome == bare for outcome in (*outcomes, *more)), where
        assert all(ours <= theirs + SLACK_S for ours, theirs in zip(times_s, bare_times_s, strict=True)), where
        counted = guard.counters()
        assert guard.is_off(name), where
        assert list(counted) == [name], where
        assert guard.LIMIT <= int(str(counted[name]["errors"])) < guard.LIMIT + CHUNKS, where
        assert str(counted[name]["cause"]).startswith(f"ValueError at {mapping.__module__}:"), where
        first, off = [record.getMessage() for record in caplog.records if record.name.startswith("amfs_otel")]
        assert f"internal error in {name} ({counted[name]['cause']})" in first
        assert f"patch {name} switched itself off after {guard.LIMIT} internal errors" in off
        assert sorted(shapes_of(captured)[: len(healthy)], key=repr) == sorted(healthy, key=repr), where
    assert len(reached) >= (2 if library.reports else 1), reached

"""What every patch must hold, whatever it patches."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, cast

import pytest
import wrapt
from packaging.requirements import Requirement

from amfs_otel import guard, instrumentor
from amfs_otel.instrumentor import LIBRARIES, Library, PatchState, Wrapper
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
    """What the wrapper makes of a call that answers with `answer`, on an instance that tells our mappings nothing."""

    def plain(*_args: Any, **_kwargs: Any) -> Any:
        return answer()

    async def coroutine(*_args: Any, **_kwargs: Any) -> Any:
        return answer()

    if not inspect.iscoroutinefunction(inspect.unwrap(target.original)):
        return target.wrapper(plain, object(), (), {})
    pending = target.wrapper(coroutine, object(), (), {})
    assert inspect.isawaitable(pending)
    with pytest.raises(StopIteration) as stopped:
        pending.__await__().__next__()
    return stopped.value.value


@pytest.mark.parametrize("broken", [False, True], ids=["mappings-as-they-are", "every-mapping-raises"])
@LIBRARY
def test_results_and_errors_pass_through_untouched(
    library: Library, broken: bool, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets, patch = list(targets_of(library)), patch_of(library)

    def failing(*_args: Any, **_kwargs: Any) -> Any:
        raise ValueError("a mapping of ours")

    helpers = f"amfs_otel_instrumentation._{library.name}"
    mappings = [n for n, v in vars(patch).items() if inspect.isfunction(v) and v.__module__.startswith(helpers)]
    for name in mappings if broken else ():
        monkeypatch.setattr(patch, name, failing)
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

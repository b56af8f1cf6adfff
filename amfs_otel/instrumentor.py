"""Patching: which libraries there are, when their patches are applied, and what came of it.

A patch module has `requires`, `hooks` ("module:Class.method" → wrapper), where needed `hooks_when_imported`, and, for a
library with a public hook of its own, `listen`, which registers there and returns what takes it back.

Nothing is imported for a program that does not use it: `instrument` registers one post-import hook per row of the table
`libraries.LIBRARIES`; the patch module is imported when the target has been imported. A hook runs inside the user's
import statement, so nothing leaves it. Versions are checked there; a conflict is one log line and a row in `doctor`.
"""

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import wrapt

from amfs_otel import guard
from amfs_otel.libraries import LIBRARIES, Library

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""wrapt's signature: (wrapped, instance, args, kwargs) → result."""


@dataclass(slots=True)
class PatchState:
    """What became of one library's patch; a row in `doctor`.

    Attributes:
        name: The library.
        state: `waiting` (not imported yet), `patched`, `partial`, `disabled`, `conflict`, `failed`.
        version: Version found.
        missing: Hooks whose target does not exist in this version.
        foreign: Targets that another vendor's instrumentor had wrapped before us: "target: owner".
        foreign_over: Targets that one has wrapped since, around ours: likewise.
        detail: Why, where it is not `patched`.
    """

    name: str
    state: str = "waiting"
    version: str | None = None
    missing: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])
    foreign_over: list[str] = field(default_factory=list[str])
    detail: str | None = None


@dataclass(slots=True)
class _Replaced:
    parent: Any
    attribute: str
    original: Any
    ours: Any
    inherited: bool


_lock = threading.RLock()
_states: dict[str, PatchState] = {}
_replaced: dict[str, list[_Replaced]] = {}
_listening: dict[str, Callable[[], None]] = {}
_unfinished: dict[str, list[Callable[[], None]]] = {}
_registered: set[str] = set()


def instrument(
    names: Iterable[str] = (),
    *,
    disabled: Callable[[str], bool] = lambda _: False,
    before_patch: Callable[[], None] = lambda: None,
) -> None:
    """Registers the patches of `names` (all when empty). Idempotent; patch twice = once.

    Args:
        names: Names of libraries in `libraries.LIBRARIES`.
        disabled: Says whether a library is switched off by configuration.
        before_patch: Called before a library that was just imported is patched: starts what the patch reports to.

    Raises:
        ValueError: A name is not there.
    """
    wanted = tuple(names)
    unknown = set(wanted) - {library.name for library in LIBRARIES}
    if unknown:
        known = ", ".join(library.name for library in LIBRARIES)
        raise ValueError(f"no patch for {', '.join(sorted(unknown))}; known libraries: {known}")
    for library in LIBRARIES:
        if wanted and library.name not in wanted:
            continue
        if disabled(library.name):
            _states.setdefault(library.name, PatchState(library.name)).state = "disabled"
        else:
            _register(library, before_patch)


def _register(library: Library, before_patch: Callable[[], None]) -> None:
    with _lock:
        state = _states.setdefault(library.name, PatchState(library.name))
        if state.state == "disabled":
            state.state = "waiting"
        if library.name in _registered:
            if library.target in sys.modules and library.name not in _replaced:
                if library.reports:
                    guard.run(library.name, before_patch)
                _patch(library)
            return
        _registered.add(library.name)

    def imported(_module: Any) -> None:
        if _states[library.name].state != "disabled":
            if library.reports:
                guard.run(library.name, before_patch)
            guard.run(library.name, _patch, library)

    wrapt.register_post_import_hook(imported, library.target)
    if library.hears is not None:
        wrapt.register_post_import_hook(lambda _module: guard.run(library.name, _listen, library), library.hears)


def _patch(library: Library) -> None:
    """Applies the patch module of `library`, whose target has just been imported."""
    with _lock:
        state = _states[library.name]
        if library.name in _replaced or state.state == "disabled":
            return
        try:
            patch = importlib.import_module(f"amfs_otel_instrumentation.{library.name}")
            state.version = _installed_version(library.distribution)
            conflict = _conflict(patch.requires, state.version)
            if conflict is not None:
                state.state, state.detail = "conflict", conflict
                guard.once(f"conflict:{library.name}", logging.WARNING, "amfs-otel: %s; not instrumented", conflict)
                return
            _replaced[library.name] = []
            for target, wrapper in cast("Mapping[str, Wrapper]", patch.hooks).items():
                _hook(library.name, state, target, wrapper)
            for target, wrapper in cast("Mapping[str, Wrapper]", getattr(patch, "hooks_when_imported", {})).items():
                _hook_when_imported(library.name, state, target, wrapper)
            if hasattr(patch, "listen") and (library.hears is None or _is_imported(library.hears)):
                _listen(library)
        except Exception as error:  # noqa: BLE001  it would surface in the user's import statement
            state.state, state.detail = "failed", type(error).__name__
            guard.failed(library.name, error)
            return
        state.state = "partial" if state.missing else "patched"
        if state.missing:
            guard.once(
                f"missing:{library.name}",
                logging.WARNING,
                "amfs-otel: %s %s has no %s; the rest is instrumented",
                library.name,
                state.version,
                ", ".join(state.missing),
            )


def _listen(library: Library) -> None:
    """Has a patched library's own hook tell its patch, until `uninstrument`."""
    with _lock:
        if library.name in _replaced and library.name not in _listening:
            patch = importlib.import_module(f"amfs_otel_instrumentation.{library.name}")
            _listening[library.name] = patch.listen()


def _is_imported(module_name: str) -> bool:
    """Whether a module is there as a whole, not in the middle of its import."""
    module = sys.modules.get(module_name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _hook(name: str, state: PatchState, target: str, wrapper: Wrapper) -> None:
    """Wraps one `module:Class.method`; a missing one is reported, the rest works."""
    module_name, _, path = target.partition(":")
    optional = path.endswith("?")
    try:
        module = importlib.import_module(module_name)
        parent, attribute, original = wrapt.resolve_path(module, path.removesuffix("?"))
        if isinstance(parent, type) and not any(attribute in vars(base) for base in parent.__mro__):
            raise AttributeError(attribute)  # `__call__` would be found on the metaclass
    except (ImportError, AttributeError):
        if not optional:
            state.missing.append(target)
        return
    owner = _foreign_owner(original)
    if wrap(name, parent, attribute, wrapper) and owner is not None:
        state.foreign.append(f"{path.removesuffix('?')}: {owner}")


def _hook_when_imported(name: str, state: PatchState, target: str, wrapper: Wrapper) -> None:
    """`_hook` as soon as the module of `target` is imported, which importing the library alone need not do."""

    def imported(_module: Any) -> None:
        with _lock:
            if name in _replaced:
                guard.run(name, _hook, name, state, target, wrapper)
                if state.missing and state.state == "patched":
                    state.state = "partial"

    module_name = target.partition(":")[0]
    if module_name in sys.modules and not _is_imported(module_name):
        # Its import led to the library's, whose import led here: it has no classes yet.
        _unfinished.setdefault(name, []).append(lambda: imported(None))
    else:
        wrapt.register_post_import_hook(imported, module_name)


def settle(name: str) -> None:
    """Wraps what could not be wrapped while its module was being imported; a patch calls it where it is first used."""
    for retry in _unfinished.pop(name, ()):
        retry()


def wrap(name: str, parent: Any, attribute: str, wrapper: Wrapper) -> bool:
    """Wraps one attribute, until `uninstrument`; for classes that a patch meets only when they are used.

    Args:
        name: The library on whose account it goes; nothing is done unless it is patched.
        parent: Class or module.
        attribute: Name of its function or method.
        wrapper: What is called instead.

    Returns:
        Whether it was wrapped; `False` where it was already.
    """
    if name not in _replaced or any(i.parent is parent and i.attribute == attribute for i in _replaced[name]):
        return False
    original = getattr(parent, attribute)
    inherited = attribute not in vars(parent) if isinstance(parent, type) else False
    # A static or class method must be wrapped as the descriptor that it is.
    raw = vars(parent).get(attribute, original) if isinstance(parent, type) else original
    ours = wrapt.FunctionWrapper(raw, _guarded(name, wrapper))
    setattr(parent, attribute, ours)
    _replaced[name].append(_Replaced(parent, attribute, raw, ours, inherited))
    return True


def _guarded(name: str, wrapper: Wrapper) -> Wrapper:
    """The one choke point: a patch that switched itself off is transparent."""

    def guarded(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A method that was bound before `uninstrument` still comes here.
        if guard.is_off(name) or name not in _replaced:
            return wrapped(*args, **kwargs)
        return wrapper(wrapped, instance, args, kwargs)

    return guarded


def _foreign_owner(function: Any) -> str | None:
    """The instrumentor that wrapped `function`, before us or around us, by the module of its wrapper."""
    for _ in range(10):
        owner: Any = getattr(function, "_self_wrapper", None)
        if owner is None:
            return None
        module = str(getattr(owner, "__module__", ""))
        if module.startswith("amfs_otel"):
            return None
        if "instrumentation" in module:
            return module
        function = getattr(function, "__wrapped__", None)
    return None


def uninstrument(names: Iterable[str] = ()) -> None:
    """Restores every original (identity included) where nobody wrapped over us; elsewhere we become transparent.

    What is imported later is left as it is, until `instrument`.
    """
    wanted = set(names)
    with _lock:
        for name in _registered - _replaced.keys():
            if not wanted or name in wanted:
                _states[name].state = "disabled"
        for name in [n for n in _replaced if not wanted or n in wanted]:
            if name in _listening:
                guard.run(name, _listening.pop(name))
            for item in reversed(_replaced.pop(name)):
                if cast("dict[str, Any]", vars(item.parent)).get(item.attribute) is not item.ours:
                    continue
                if item.inherited:
                    delattr(item.parent, item.attribute)
                else:
                    setattr(item.parent, item.attribute, item.original)
            _states[name] = PatchState(name)


def states() -> list[PatchState]:
    """The state of every registered patch."""
    with _lock:
        for name, items in _replaced.items():
            _states[name].foreign_over = [told for item in items if (told := _wrapped_over(item)) is not None]
        return list(_states.values())


def _wrapped_over(item: _Replaced) -> str | None:
    """Who has wrapped what we wrapped, if it is an instrumentor."""
    outermost = cast("dict[str, Any]", vars(item.parent)).get(item.attribute)
    owner = None if outermost is item.ours else _foreign_owner(outermost)
    return None if owner is None else f"{getattr(item.parent, '__qualname__', '')}.{item.attribute}: {owner}"


def _installed_version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _conflict(requires: str, found: str | None) -> str | None:
    """Why `found` does not satisfy `requires` (`name >= x, < y`), or `None`."""
    from packaging.requirements import Requirement

    requirement = Requirement(requires)
    if found is None or requirement.specifier.contains(found, prereleases=True):
        return None
    return f"{requirement.name} {found} is outside {requirement.specifier}"

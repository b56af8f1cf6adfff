"""The table of libraries: each row is whole, and what it says of conventions stands in the table of facts."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from amfs_otel import libraries, semconv
from amfs_otel.libraries import CONVENTIONS, LIBRARIES, Conventions, Duration, Library
from amfs_otel.model import Kind
from tests.support.oracle import reference

OWN = pytest.mark.parametrize("own", CONVENTIONS.values(), ids=list(CONVENTIONS))
DURATIONS = [one for own in CONVENTIONS.values() for one in (own.duration, own.served_duration) if one is not None]


def test_it_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(str(libraries.__file__)).read_text(encoding="utf-8"))
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in named} <= sys.stdlib_module_names


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_each_row_has_a_patch(library: Library) -> None:
    assert importlib.util.find_spec(f"amfs_otel_instrumentation.{library.name}") is not None


def test_names_and_other_instrumentors_are_distinct() -> None:
    names = [library.name for library in LIBRARIES]
    modules = [by.module for library in LIBRARIES for by in library.beside]
    assert (len(set(names)), len(set(modules))) == (len(names), len(modules))


@OWN
def test_attributes_of_own_conventions_are_registered(own: Conventions) -> None:
    ours = {key for key in own.attributes.values() if key.startswith("amfs.")}
    assert set(own.attributes.values()) - ours <= reference()["attributes"].keys()
    assert not set(own.attributes.values()) & reference()["legacy"]["attributes"].keys()


@OWN
def test_own_conventions_are_whole(own: Conventions) -> None:
    assert own.operation is None or own.operation in own.attributes
    assert set(own.measured_by) <= own.attributes.keys()
    assert own.genai_kinds <= {str(kind) for kind in Kind}


@pytest.mark.parametrize("duration", DURATIONS, ids=lambda duration: duration.name)
def test_durations_follow_the_table(duration: Duration) -> None:
    metrics = reference()["profiles"][semconv.PROFILE]["metrics"]
    (entry,) = [entry for entry in metrics if entry["name"] == duration.name]
    assert (entry["instrument"], entry["unit"]) == ("histogram", "s")
    assert duration.buckets == tuple(float(bound) for bound in entry["bucket_boundaries"])

"""What an SDK hands back is read without running its code."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from amfs_otel.capture.nodes import members


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Loud:
    """Every look at it is an error."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__dict__", "__class__", "__pydantic_extra__"):
            return object.__getattribute__(self, name)
        raise AssertionError(name)

    def __init__(self) -> None:
        object.__getattribute__(self, "__dict__")["kept"] = 1


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        (SimpleNamespace(a=1), {"a": 1}),
        (Loose.model_construct(name="n"), {"name": "n"}),
        (Loose.model_validate({"name": "n", "later": 2}), {"name": "n", "later": 2}),
        (None, {}),
        ("text", {}),
        ([1], {}),
        (dict, {}),
    ],
)
def test_members_of_whatever_a_server_sends(node: Any, expected: dict[str, Any]) -> None:
    assert dict(members(node)) == expected


def test_an_object_is_not_asked() -> None:
    found = members(Loud())
    assert found.get("kept") == 1
    assert found.get("lacking") is None


def test_what_the_class_does_not_know_is_not_added_to_the_model() -> None:
    node = Loose.model_validate({"name": "n", "later": 2})
    assert "later" in members(node)
    assert "later" not in node.__dict__

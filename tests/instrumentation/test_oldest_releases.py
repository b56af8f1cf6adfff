"""Patches on the oldest releases that they support; every other test has the newest.

Those of amfs, langchain and mcp are tried at the end of their own files. What an oldest release does not have stands
here by name, so that nothing else goes untested unseen.
"""

from pathlib import Path

import pytest

from tests.support.environments import not_run_in

FOLDER = Path(__file__).parent


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("environment", "files", "chosen", "lacking"),
    [
        pytest.param(
            "oldest-anthropic",
            ["test_anthropic.py", "test_anthropic_streams.py", "test_contract.py"],
            "anthropic",
            {
                "messages.parse; anthropic 0.40.0 has none": 1,
                "key of Bedrock's client; anthropic 0.40.0 has none": 1,
            },
            id="anthropic",
        ),
        pytest.param(
            "oldest-openai",
            ["test_openai.py", "test_openai_streams.py", "test_contract.py"],
            "openai",
            {
                "chat.completions.parse; openai 1.1.0 has none": 1,
                "chat.completions.stream; openai 1.1.0 has none": 1,
                "close and `with` of a stream; openai 1.1.0 has none": 3,
                "metadata; openai 1.1.0 has none": 1,
                "responses; openai 1.1.0 has none": 9,
                "with_streaming_response; openai 1.1.0 has none": 2,
            },
            id="openai",
        ),
        pytest.param(
            "oldest-servers",
            ["test_boundaries.py", "test_boundaries_wsgi.py", "test_boundaries_celery.py", "test_contract.py"],
            "boundaries or starlette or flask or django or celery",
            {},
            id="servers",
        ),
    ],
)
def test_the_tests_of_a_patch(environment: str, files: list[str], chosen: str, lacking: dict[str, int]) -> None:
    paths = [FOLDER / name for name in files]
    # How long calls take beside a patch that fails is measured on the newest alone.
    assert not_run_in(environment, paths, f"({chosen}) and not switched_off") == lacking

"""The commands, put together."""

from typing import Annotated

import typer

from amfs_otel.cli import caring, demo, diagnosing, outcome, preparing, reading, run, verifying

app = typer.Typer(
    name="amfs-otel",
    help="Signed, explainable decision traces of AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"amfs-otel {version('amfs-otel')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Signed, explainable decision traces of AI agents."""


for group in (demo, run, reading, outcome, verifying, diagnosing, preparing, caring):
    group.register(app)

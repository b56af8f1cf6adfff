"""The commands, put together."""

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

for group in (demo, run, reading, outcome, verifying, diagnosing, preparing, caring):
    group.register(app)

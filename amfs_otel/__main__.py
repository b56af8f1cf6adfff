"""`python -m amfs_otel` is the command `amfs-otel`."""

from amfs_otel.cli import main

main()

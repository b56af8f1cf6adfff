"""Patches for the libraries that amfs-otel knows, one file per library."""

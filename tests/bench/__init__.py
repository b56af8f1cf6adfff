"""What capturing costs, measured beside the same program without us and, with `--peers`, beside other instrumentations.

`python -m tests.bench [NAMES…] [--peers] [--quick]` writes `docs/benchmarks.md`. The method stands in `report.METHOD`.
"""

"""What capturing costs, and whether it is seen, beside the same program without us and beside other instrumentations.

`python -m tests.bench [NAMES…] [--no-peers] [--quick]` writes `docs/benchmarks.md`; `python -m tests.bench profile` tells
where the caller's time goes. The method stands in `report.METHOD`.
"""

"""Why does nothing show up? `gather` looks, `causes` says what is wrong and what to do about it.

Looking never drains, writes nothing to a store, and takes seconds at most: each look outside has its own limit.
"""

from amfs_otel.doctor.cause import Cause
from amfs_otel.doctor.causes import causes_of
from amfs_otel.doctor.facts import Facts
from amfs_otel.doctor.looking import gather
from amfs_otel.doctor.process_causes import who
from amfs_otel.doctor.report import report_of

__all__ = ["Cause", "Facts", "causes_of", "gather", "report_of", "who"]
"""Public names."""

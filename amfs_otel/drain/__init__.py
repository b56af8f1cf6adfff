"""From the spool to the sealed log: adopt what dead processes left, deliver, seal, project, emit receipts.

Used by an agent's own drain thread (with a DSN) and by the CLI. Everything here may be repeated or killed at any point:
a record reaches the store exactly once.
"""

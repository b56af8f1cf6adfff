"""The record store against plain tables, raw COPY and bare loops of the same work, on a server of its own."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from amfs_otel.chain.keys import Key, KeyRing
from amfs_otel.chain.record import PartInput, Record, make_record, new_record_id, record_to_bytes
from amfs_otel.chain.verify import LogVerifier
from amfs_otel.drain.deliver import Courier
from amfs_otel.settings import Settings
from amfs_otel.spool import LOCAL, SpoolWriter, StateDirectory
from amfs_otel.store.account import own, server_account
from amfs_otel.store.binaries import all_binaries
from amfs_otel.store.cluster import Cluster
from amfs_otel.store.postgres import Store
from amfs_otel.store.schema import prepare
from tests.bench.report import TIMES, Effort, Figure, Section

LOG = "default"
PLAIN = """
CREATE SCHEMA plain;
CREATE TABLE plain.record (id uuid PRIMARY KEY, header text, record_hash bytea, signature bytea, commitments bytea);
CREATE TABLE plain.part (record uuid, number integer, salt bytea, bytes bytea, PRIMARY KEY (record, number));
"""
INSERT_PLAIN = """
WITH stored AS (INSERT INTO plain.record VALUES (%s::uuid, %s, %b, %b, %b))
INSERT INTO plain.part SELECT %s::uuid, n, s, b FROM unnest(%b::int4[], %b::bytea[], %b::bytea[]) AS given (n, s, b)
"""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A prepared log in a database, beside plain tables."""

    dsn: str
    writer_key: Key
    log_key: Key

    def record(self, text_bytes: int) -> Record:
        """A signed record with one text of that size."""
        now = time.time_ns()
        parts = [
            PartInput("s", b'{"schema":"amfs-otel/decision/1","events":[]}'),
            PartInput("i", b'["bench-agent"]'),
            PartInput("m", os.urandom(text_bytes // 2).hex().encode()),
        ]
        return make_record(
            kind="decision", log=LOG, record_id=new_record_id(now), session=os.urandom(16).hex(), parts=parts,
            key=self.writer_key, captured_at_ns=now,
        )  # fmt: skip

    def records(self, count: int, text_bytes: int = 1024) -> list[Record]:
        """So many of them."""
        return [self.record(text_bytes) for _ in range(count)]


@contextmanager
def server() -> Generator[Ledger]:
    """A server with our own settings, durable as they are, gone afterwards."""
    binaries, account = next(iter(all_binaries())), server_account()
    home = Path(tempfile.mkdtemp(prefix="amfs-otel-bench-", dir="/tmp"))
    try:
        own(home, account)
        cluster = Cluster(binaries, home / "data", home, home / "server.log", account)
        cluster.initialise(sync=False)
        cluster.start()
        try:
            ledger = Ledger(cluster.dsn, Key(os.urandom(32)), Key(os.urandom(32)))
            prepare(ledger.dsn, log=LOG, writer_key=ledger.writer_key, log_key=ledger.log_key, now_ns=time.time_ns())
            with psycopg.connect(ledger.dsn, autocommit=True) as connection:
                connection.execute(PLAIN)
            yield ledger
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(home)


def measure(effort: Effort) -> Section:
    """The section."""
    section = Section("Store")
    with server() as ledger:
        for writers in (1, 4, 16):
            section.figures.append(_append(ledger, writers, effort))
        section.figures.append(_batch(ledger, effort))
        section.figures += _lag(ledger, effort)
        section.figures += _drain(ledger, effort)
        section.figures += _verify(ledger, effort)
        with psycopg.connect(ledger.dsn) as connection:
            version = connection.info.server_version // 10000
    section.remarks.append(
        f"PostgreSQL {version}, fsync on, reached through a Unix socket; records with one text of 1 KiB unless it says "
        "otherwise. Plain tables hold the same columns and primary keys, and no rules, checks or generated columns."
    )
    return section


def _rows(record: Record) -> list[list[Any]]:
    kept = [part for part in record.parts if part.salt is not None]
    return [[part.number for part in kept], [part.salt for part in kept], [part.data for part in kept]]


def _append(ledger: Ledger, writers: int, effort: Effort) -> Figure:
    """Single appends by several writers, ours and plain ones by turns."""
    count = effort.of(60, 25)

    def ours(records: Sequence[Record]) -> None:
        with Store.connect(ledger.dsn, LOG) as store:
            for record in records:
                store.append([record])

    def plain(records: Sequence[Record]) -> None:
        with psycopg.connect(ledger.dsn, autocommit=True) as connection:
            for record in records:
                head = (record.record_id, record.header.decode(), record.record_hash, record.signature)
                commitments = b"".join(record.commitments)
                connection.execute(INSERT_PLAIN, (*head, commitments, record.record_id, *_rows(record)))

    ratios: list[float] = []
    rates: list[float] = []
    for _ in range(effort.of(5, 2)):
        records = [ledger.records(max(5, count // writers)) for _ in range(writers)]
        ours_s, plain_s = _together(ours, records), _together(plain, records)
        ratios.append(plain_s / ours_s)
        rates.append(sum(map(len, records)) / ours_s)
    return Figure(
        f"append, {writers} writer{'s' if writers > 1 else ''}, of plain tables", statistics.median(ratios), TIMES, 0.75,
        at_least=True, note=f"{statistics.median(rates):,.0f} records a second here",
    )  # fmt: skip


def _together(work: Callable[[Sequence[Record]], None], shares: Sequence[Sequence[Record]]) -> float:
    """Seconds until all shares were worked off, each in a thread of its own."""
    with ThreadPoolExecutor(len(shares)) as pool:
        started = time.perf_counter()
        list(pool.map(work, shares))
        return time.perf_counter() - started


def _batch(ledger: Ledger, effort: Effort) -> Figure:
    ratios: list[float] = []
    with Store.connect(ledger.dsn, LOG) as store, psycopg.connect(ledger.dsn, autocommit=True) as connection:
        for _ in range(effort.of(8, 4)):
            records = ledger.records(100)
            started = time.perf_counter()
            store.append(records)
            ours_s = time.perf_counter() - started
            started = time.perf_counter()
            _raw_copy(connection, records)
            ratios.append((time.perf_counter() - started) / ours_s)
    return Figure("append of 100 at once, of raw COPY", statistics.median(ratios), TIMES, 0.3, at_least=True)


def _raw_copy(connection: psycopg.Connection[Any], records: Sequence[Record]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        with cursor.copy("COPY plain.record FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["uuid", "text", "bytea", "bytea", "bytea"])
            for record in records:
                head = (UUID(record.record_id), record.header.decode(), record.record_hash, record.signature)
                copy.write_row((*head, b"".join(record.commitments)))
        with cursor.copy("COPY plain.part FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["uuid", "int4", "bytea", "bytea"])
            for record in records:
                for number, salt, data in zip(*_rows(record), strict=True):
                    copy.write_row((UUID(record.record_id), number, salt, data))


def _lag(ledger: Ledger, effort: Effort) -> list[Figure]:
    """From the end of an append to the commit of the entry, with a sealer beside a writer of 50 records a second."""
    stored: dict[str, float] = {}
    sealed: dict[str, float] = {}
    done = threading.Event()

    def seal(store: Store) -> None:
        while not (done.is_set() and len(sealed) >= len(stored)):
            for _, record_id in store.seal(ledger.log_key).entries:
                sealed[record_id] = time.monotonic()
            time.sleep(0.02)  # as the sealer pauses

    with Store.connect(ledger.dsn, LOG) as sealing, Store.connect(ledger.dsn, LOG) as store:
        while sealing.seal(ledger.log_key).count:
            pass
        sealer = threading.Thread(target=seal, args=(sealing,))
        sealer.start()
        for record in ledger.records(effort.of(300, 100)):
            store.append([record])
            stored[record.record_id] = time.monotonic()
            time.sleep(0.02)
        done.set()
        sealer.join()
    lags = sorted((sealed[record_id] - at) * 1000 for record_id, at in stored.items())
    return [
        Figure("from stored to sealed, p50", lags[len(lags) // 2], "ms", 100.0),
        Figure("from stored to sealed, p99", lags[len(lags) * 99 // 100], "ms", 500.0),
    ]


def _drain(ledger: Ledger, effort: Effort) -> list[Figure]:
    """Spooled records into the store, delivered twice as after a crash between delivery and tidying up."""
    count = effort.of(1000, 300)
    records = ledger.records(count)
    with tempfile.TemporaryDirectory(prefix="amfs-otel-bench-") as home:
        state = StateDirectory(Path(home) / "state")
        settings = Settings(state_dir=state.path, program="bench", log=LOG)
        with SpoolWriter(state, LOCAL) as writer, Store.connect(ledger.dsn, LOG) as store:
            for record in records:
                writer.append("records", UUID(record.record_id).bytes, record_to_bytes(record))
            writer.sync()
            started = time.perf_counter()
            first = Courier(settings, state, LOCAL, ledger.writer_key).deliver(store, own=writer.name, others=False)
            seconds = time.perf_counter() - started
            again = Courier(settings, state, LOCAL, ledger.writer_key).deliver(store, own=writer.name, others=False)
            there = len(store.places([record.record_id for record in records]))
    speed = f"{count / seconds:,.0f} records a second here"
    return [
        Figure(f"drain of {count:,} spooled records: lost", float(count - there), "", 0.0, note=speed),
        Figure("the same spool drained again: doubled", float(first.stored + again.stored - count), "", 0.0),
    ]


def _verify(ledger: Ledger, effort: Effort) -> list[Figure]:
    with Store.connect(ledger.dsn, LOG) as store:
        small = _verified_at(store, ledger, effort, 1536, 0.25)
        return small + _verified_at(store, ledger, effort, 16384, 0.5)


def _verified_at(store: Store, ledger: Ledger, effort: Effort, size: int, bar: float) -> list[Figure]:
    """Verifying records with one text of `size` bytes."""
    first = _filled(store, ledger, size, effort.of(1500, 400) if size < 4096 else effort.of(400, 100))
    full = _fastest(lambda: _verified(store, ledger, first, "full"), effort)
    headers = _fastest(lambda: _verified(store, ledger, first, "headers"), effort)
    stored = list(store.stored_entries(first=first))
    records = [one.record for one in stored if one.record is not None]
    entries = [one.entry.entry for one in stored]
    out = _fastest(lambda: _copied_out(store, [record.record_id for record in records]), effort)
    hashes = _fastest(lambda: _hashes(records), effort)
    loop = _fastest(lambda: _headers(records, entries), effort)
    what, speed = f"{size / 1024:g} KiB", f"{len(records) / full:,.0f} records a second here"
    work = "the loop holds its rows already: 2 json.loads, 4 SHA-256, 2 HMAC a record"
    return [
        Figure(f"full verify, {what}, of raw COPY out", out / full, TIMES, bar, at_least=True),
        Figure(f"full verify, {what}, of the same hashes", hashes / full, TIMES, note=speed),
        Figure(f"headers only, {what}, of a bare loop", loop / headers, TIMES, 0.6, at_least=True, note=work),
    ]


def _filled(store: Store, ledger: Ledger, size: int, count: int) -> int:
    """Stores and seals `count` records; gives the sequence number of the first."""
    head = store.head()
    first = (head.sequence_number if head is not None else -1) + 1
    for start in range(0, count, 100):
        store.append(ledger.records(min(100, count - start), size))
    while store.seal(ledger.log_key).count:
        pass
    return first


def _fastest(work: Callable[[], object], effort: Effort) -> float:
    """Seconds of the fastest of a few runs."""
    times: list[float] = []
    for _ in range(effort.of(3, 2)):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _verified(store: Store, ledger: Ledger, first: int, level: Any) -> None:
    ring = KeyRing([ledger.writer_key, ledger.log_key])
    verifier = LogVerifier(LOG, ring, level=level, now_ns=time.time_ns(), first=first)
    with store.reading():
        for stored in store.stored_entries(first=first, parts=level == "full"):
            verifier.feed(stored)
    verdict = verifier.finish().verdict
    if verdict.name not in ("INTACT", "UNANCHORED", "INCOMPLETE"):
        raise RuntimeError(f"the log of the bench is {verdict.name}")


def _copied_out(store: Store, record_ids: Sequence[str]) -> None:
    for table, key in (("record", "id"), ("part", "record")):
        text = sql.SQL("COPY (SELECT * FROM {} WHERE {} = ANY (%s::uuid[])) TO STDOUT (FORMAT BINARY)").format(
            sql.Identifier("amfs_otel", table), sql.Identifier(key)
        )
        with store.connection.cursor().copy(text, (list(record_ids),)) as copy:
            for _ in copy:
                pass


def _hashes(records: Sequence[Record]) -> None:
    for record in records:
        hashlib.sha256(record.header).digest()
        for part in record.parts:
            hashlib.sha256((part.salt or b"") + (part.data or b"")).digest()


def _headers(records: Sequence[Record], entries: Sequence[bytes]) -> None:
    key = os.urandom(32)
    for record, entry in zip(records, entries, strict=True):
        json.loads(record.header)
        json.loads(entry)
        for data in (record.header, entry, record.signature, record.record_hash):
            hashlib.sha256(data).digest()
        for data in (record.record_hash, record.signature):
            hmac.digest(key, data, "sha256")

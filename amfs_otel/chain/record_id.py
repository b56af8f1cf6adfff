"""The id of a record. A module of its own: an agent needs it at its start, and nothing else of the format."""

import os


def new_record_id(now_ns: int) -> str:
    """Return a new UUIDv7 (RFC 9562 5.7): milliseconds, 12 bits of their fraction, 62 random bits.

    Args:
        now_ns: Nanoseconds since the epoch.
    """
    milliseconds, rest_ns = divmod(now_ns, 1_000_000)
    fraction = rest_ns * 4096 // 1_000_000
    random_bits = int.from_bytes(os.urandom(8), "big") >> 2
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 0b10 << 62 | random_bits
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

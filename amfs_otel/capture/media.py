"""Media inside messages: their bytes are nobody's reading, digest and size are evidence enough."""

import base64
import binascii
import hashlib
from typing import Any

BLOB_CHARACTERS = 1024
"""Longer base64 is replaced by digest and size of what it stands for."""


def bounded_base64(data: Any) -> Any:
    """Short base64 as it is; of longer, digest and size of the decoded bytes (of the text where it decodes to none)."""
    if not isinstance(data, str) or len(data) <= BLOB_CHARACTERS:
        return data
    try:
        content = base64.b64decode(data)
    except (binascii.Error, ValueError):
        content = data.encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(content).hexdigest()} ({len(content)} bytes)"

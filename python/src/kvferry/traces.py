"""Contexts of distributed traces, as calls to an agent carry them."""

from __future__ import annotations

import re

# 16 bytes of the trace, 8 of the span and one of flags.
TRACE_BYTES = 25

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def parse_traceparent(header: str | None) -> bytes:
    """Return the context of a traceparent header (W3C Trace Context).

    The result is empty if there is no header, or if it is not valid.
    """
    match = _PARENT.fullmatch(header.strip()) if header else None
    if match is None or (match.string.startswith("00") and match[4]):
        return b""
    return bytes.fromhex(match[1] + match[2] + match[3])

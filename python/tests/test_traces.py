"""Tests of the contexts of traces."""

from __future__ import annotations

import pytest

from kvferry.traces import TRACE_BYTES, parse_traceparent

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_parent_is_read() -> None:
    """A traceparent becomes the trace, the span and the flags."""
    context = parse_traceparent(PARENT)
    assert len(context) == TRACE_BYTES
    assert context.hex() == PARENT.replace("-", "")[2:]
    assert parse_traceparent(f" {PARENT} ") == context
    assert parse_traceparent("01" + PARENT[2:] + "-more") == context


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        PARENT + "-more",
        PARENT + "x",
        "ff" + PARENT[2:],
        PARENT.upper(),
        "00-" + "0" * 32 + PARENT[35:],
        PARENT[:36] + "0" * 16 + "-01",
        PARENT.replace("b", "g"),
    ],
)
def test_other_headers_are_no_parents(header: str | None) -> None:
    """What is not valid is no parent."""
    assert parse_traceparent(header) == b""

"""The connector's log. Only vLLM's own loggers have handlers, so this logger is a child of theirs."""

from __future__ import annotations

import logging

log = logging.getLogger("vllm.kvferry")


def route_client_log() -> None:
    """Send the log of the client to vLLM's handlers, unless the program has configured handlers for it."""
    client = logging.getLogger("kvferry")
    if not client.hasHandlers():
        client.parent = logging.getLogger("vllm")

"""The connector's log. vLLM gives handlers to its own loggers alone, so ours is a child of them."""

from __future__ import annotations

import logging

log = logging.getLogger("vllm.kvferry")


def route_client_log() -> None:
    """Have the log of the client, of which a program of its own would take care, go where vLLM's goes."""
    client = logging.getLogger("kvferry")
    if not client.hasHandlers():
        client.parent = logging.getLogger("vllm")

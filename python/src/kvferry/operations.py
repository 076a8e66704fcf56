"""What a client can ask for, one function for each: what is checked, what is said on the wire, what an answer means.

What handles can ask for is theirs (holding.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvferry.call_spec import (
    PORT,
    U64,
    CallSpec,
    check_done,
    check_done_or_missing,
    check_hits,
    check_list,
    check_number,
    check_pages,
    check_reply,
    check_texts,
    to_nanoseconds,
    wait_nanoseconds,
)
from kvferry.codes import Code
from kvferry.errors import invalid_error
from kvferry.limits import REASON_BYTES
from kvferry.values import LendResult, Lookup, Prefix, RegisterResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvferry.call_waiter import Reply
    from kvferry.handle_base import PagesBase
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer


def stats() -> CallSpec[dict[str, Any]]:
    """Ask for counters."""

    def read(reply: Reply) -> dict[str, Any]:
        counters: dict[str, Any] = json.loads(check_reply(reply).answer.stats or b"{}")
        return counters

    return CallSpec("stats", {}, 0.0, read)


# ---- sender ----


def reserve(count: int, timeout: float | None) -> CallSpec[Reply]:
    """Ask for pages."""
    number = check_number("reserve", "count", count)
    return CallSpec(
        "reserve", {"count": number, "patience_ns": to_nanoseconds("reserve", "timeout", timeout)}, timeout, check_reply
    )


def put(
    peer: Peer,
    keys: Sequence[str],
    pages: PagesBase,
    request: str,
    first_page: int,
    last_chunk_tokens: int,
    last_batch: bool,
    timeout: float | None,
) -> CallSpec[None]:
    """Ask for a push."""
    keys = check_texts("put", "keys", keys)
    pages.check_range("put", first_page, len(keys))
    entries = {
        "tokens": check_number("put", "last_chunk_tokens", last_chunk_tokens),
        "last": last_batch,
        **_peer_entries("put", peer),
        **_key_entries("put", keys, request, timeout),
        "target": pages.number,
        "first": first_page,
    }
    return CallSpec("put", entries, timeout, check_done)


def _cut_reason(text: str) -> str:
    """Cut words for people to what an agent passes on."""
    return text.encode()[:REASON_BYTES].decode(errors="ignore")


def recall(
    peer: Peer, keys: Sequence[str], pages: PagesBase, request: str, first_page: int, timeout: float | None
) -> CallSpec[Reply]:
    """Ask for chunks back."""
    keys = check_texts("recall", "keys", keys)
    pages.check_range("recall", first_page, len(keys))
    entries = {**_peer_entries("recall", peer), **_key_entries("recall", keys, request, timeout)}
    return CallSpec("recall", {**entries, "target": pages.number, "first": first_page}, timeout, check_hits)


def begin_prefill(
    keys: Sequence[str], request: str, peer: Peer | None, skip_tokens: int, layer_seconds: float
) -> CallSpec[Reply]:
    """Ask to begin with a request."""
    op = "begin_prefill"
    entries = {
        "keys": check_texts(op, "keys", keys),
        "request": request,
        "skip": check_number(op, "skip_tokens", skip_tokens),
        "layer_ns": to_nanoseconds(op, "layer_seconds", layer_seconds or None),
        **_peer_entries(op, peer),
    }
    return CallSpec(op, entries, 0.0, check_reply)


def end_request(request: str, peer: Peer, code: int, reason: str, timeout: float | None) -> CallSpec[None]:
    """Ask to have a receiver told how a request ended."""
    entries = {
        "request": request,
        "code": check_number("end", "code", code),
        "reason": _cut_reason(reason),
        "patience_ns": to_nanoseconds("end", "timeout", timeout),
        **_peer_entries("end", peer),
    }
    return CallSpec("end", entries, timeout, check_done)


# ---- receiver ----


def get(keys: Sequence[str], request: str, layered: bool, timeout: float) -> CallSpec[Reply]:
    """Ask for chunks of the pool."""
    entries = {"keys": check_texts("get", "keys", keys), "request": request, "layered": layered}
    return CallSpec("get", {**entries, "patience_ns": wait_nanoseconds("get", timeout)}, timeout, check_pages)


def contains(keys: Sequence[str]) -> CallSpec[int]:
    """Ask what is there."""

    def read(reply: Reply) -> int:
        return check_reply(reply, Code.NOT_FOUND).answer.hits

    return CallSpec("contains", {"keys": check_texts("contains", "keys", keys)}, 0.0, read)


def fetch(keys: Sequence[str], request: str, timeout: float | None) -> CallSpec[Prefix]:
    """Ask to be shown chunks."""
    return CallSpec("fetch", _key_entries("fetch", keys, request, timeout), timeout, _read_prefix)


def abandon(request: str, reason: str) -> CallSpec[None]:
    """Ask to give up what is kept for a request."""
    return CallSpec("abandon", {"request": request, "reason": _cut_reason(reason)}, 0.0, check_done_or_missing)


# ---- sharing ----


def store(keys: Sequence[str], pages: PagesBase, first_page: int) -> CallSpec[None]:
    """Ask to make pages the cache's."""
    count = len(keys)

    def read(reply: Reply) -> None:
        # An error counts those that were not stored.
        missing = 0 if reply.answer.code == Code.OK else reply.answer.count or count
        pages.mark_stored(range(first_page, first_page + max(0, count - missing)))
        check_reply(reply)

    return CallSpec("store", _page_entries("store", keys, pages, first_page), 0.0, read)


def share(keys: Sequence[str], pages: PagesBase, first_page: int) -> CallSpec[Reply]:
    """Ask to let peers read pages."""

    def read(reply: Reply) -> Reply:
        return reply if reply.answer.hits else check_reply(reply)

    return CallSpec("share", _page_entries("share", keys, pages, first_page), 0.0, read)


def lookup(keys: Sequence[str]) -> CallSpec[Lookup]:
    """Ask who has chunks, here and at directories, which have as long as is configured."""

    def read(reply: Reply) -> Lookup:
        answer = check_reply(reply).answer
        return Lookup(answer.sent, answer.skipped)

    return CallSpec("lookup", {"keys": check_texts("lookup", "keys", keys)}, None, read)


def shared_get(keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None) -> CallSpec[Reply]:
    """Ask for chunks that peers share."""
    return CallSpec("shared_get", _sharing_entries("shared_get", keys, request, source, timeout), timeout, check_pages)


def lease(keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None) -> CallSpec[Prefix]:
    """Ask to have peers lend what they share."""
    return CallSpec("keep", _sharing_entries("keep", keys, request, source, timeout), timeout, _read_prefix)


def shared_fetch(
    keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None
) -> CallSpec[Prefix]:
    """Ask to be shown chunks that peers share."""
    return CallSpec(
        "shared_fetch", _sharing_entries("shared_fetch", keys, request, source, timeout), timeout, _read_prefix
    )


# ---- an engine's own blocks ----


def register_blocks(
    request: str,
    producers: Sequence[ProducerPeer],
    blocks: Sequence[Blocks],
    producer_ranks: int,
    producer_stages: int,
    transfer: str,
    engine: str,
    timeout: float | None,
    epoch: int | None = None,
) -> CallSpec[RegisterResult]:
    """Ask to have blocks written."""

    def read(reply: Reply) -> RegisterResult:
        answer = check_reply(reply).answer
        return RegisterResult(answer.hits, answer.held)

    entries = {
        **_producer_entries("register", request, producers, transfer, timeout),
        "engine": engine,
        "ranks": check_number("register", "producer_ranks", producer_ranks),
        "stages": check_number("register", "producer_stages", producer_stages),
        **_block_entries("register", blocks),
    }
    return CallSpec("register", entries, timeout, read, required_epoch=epoch)


def expect_request(
    request: str, producers: Sequence[ProducerPeer], transfer: str, timeout: float | None
) -> CallSpec[None]:
    """Ask to keep what producers lend."""
    return CallSpec(
        "expect",
        _producer_entries("expect", request, producers, transfer, timeout),
        timeout,
        check_done,
    )


def decline_request(
    request: str, producers: Sequence[ProducerPeer], transfer: str, timeout: float | None
) -> CallSpec[None]:
    """Ask to tell producers that nobody registers."""
    return CallSpec(
        "not_needed",
        _producer_entries("not_needed", request, producers, transfer, timeout),
        timeout,
        check_done,
    )


def lend_blocks(
    request: str, blocks: Sequence[Blocks], transfer: str, lease: float | None, epoch: int | None = None
) -> CallSpec[LendResult]:
    """Ask to lend blocks."""

    def read(reply: Reply) -> LendResult:
        answer = check_reply(reply).answer
        return LendResult(answer.sent, answer.skipped > 0, answer.held)

    entries = {
        "request": request,
        "transfer": transfer,
        "patience_ns": to_nanoseconds("finished", "keep", lease),
        **_block_entries("finished", blocks),
    }
    return CallSpec("finished", entries, lease, read, required_epoch=epoch)


def abort_request(request: str, transfer: str) -> CallSpec[None]:
    """Ask to end what is lent for a request."""
    return CallSpec("aborted", {"request": request, "transfer": transfer}, 0.0, check_done)


# ---- what several of them say ----


def _peer_entries(op: str, peer: Peer | SharingPeer | None) -> dict[str, Any]:
    """Name a peer; None is nobody."""
    if peer is None:
        return {}
    if not hasattr(peer, "host"):
        raise invalid_error(
            op, "peer", repr(peer)[:60], "a kvferry.Peer", 'give one, such as kvferry.Peer("10.0.0.2", 7300, 7400)'
        )
    entries: dict[str, Any] = {"host": peer.host}
    # What an operation does not take is refused by the agent, and a peer may be described once for all of them.
    for name in ("init_port", "alloc_port", *(("query_port",) if op == "recall" else ())):
        entries[name] = check_number(op, f"peer.{name}", getattr(peer, name, 0), PORT)
    return entries


def _key_entries(op: str, keys: Sequence[str], request: str, timeout: float | None) -> dict[str, Any]:
    """Name chunks."""
    timeout_ns = to_nanoseconds(op, "timeout", timeout)
    return {"keys": check_texts(op, "keys", keys), "request": request, "patience_ns": timeout_ns}


def _page_entries(op: str, keys: Sequence[str], pages: PagesBase, first_page: int) -> dict[str, Any]:
    """Name pages that chunks fill."""
    keys = check_texts(op, "keys", keys)
    pages.check_range(op, first_page, len(keys))
    for index in range(first_page, first_page + len(keys)):
        pages.check_page(op, index)
    return {"target": pages.number, "first": first_page, "keys": keys}


def _sharing_entries(
    op: str, keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None
) -> dict[str, Any]:
    """Name chunks that peers share."""
    return {**_key_entries(op, keys, request, timeout), **_peer_entries(op, source)}


def _producer_entries(
    op: str, request: str, producers: Sequence[ProducerPeer], transfer: str, timeout: float | None
) -> dict[str, Any]:
    """Name producers of a request."""
    return {
        "request": request,
        "transfer": transfer,
        "producers": [str(producer) for producer in check_list(op, "producers", producers)],
        "patience_ns": to_nanoseconds(op, "timeout", timeout),
    }


def _block_entries(op: str, blocks: Sequence[Blocks]) -> dict[str, Any]:
    """Name blocks."""
    return {
        "groups": [check_number(op, "blocks.group", b.group, PORT) for b in blocks],
        "firsts": [check_number(op, "blocks.first", b.first, U64) for b in blocks],
        "ends": [check_number(op, "blocks.end", b.end, U64) for b in blocks],
        "blocks": [[check_number(op, "blocks.logical", n) for n in b.logical] for b in blocks],
    }


def _read_prefix(reply: Reply) -> Prefix:
    """Read how far a call came."""
    return Prefix(check_hits(reply).answer.hits, reply.error)

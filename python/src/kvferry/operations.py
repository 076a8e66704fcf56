"""The operations of a client, one function each: it checks the arguments, builds the call's fields and reads the reply.

handle_base has the operations of handles.
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
    """Describe a call that returns counters."""

    def read(reply: Reply) -> dict[str, Any]:
        counters: dict[str, Any] = json.loads(check_reply(reply).answer.stats or b"{}")
        return counters

    return CallSpec("stats", {}, 0.0, read)


# ---- sender ----


def reserve(count: int, timeout: float | None, key: str) -> CallSpec[Reply]:
    """Describe a call that reserves pages; for chunks of the tenant of a key, unless that is empty."""
    number = check_number("reserve", "count", count)
    args: dict[str, Any] = {"count": number, "patience_ns": to_nanoseconds("reserve", "timeout", timeout)}
    if key:
        args["keys"] = [key]
    return CallSpec("reserve", args, timeout, check_reply)


def put(
    peer: Peer,
    keys: Sequence[str],
    pages: PagesBase,
    request: str,
    first_page: int,
    last_chunk_tokens: int,
    last_batch: bool,
    timeout: float | None,
    trace: bytes,
) -> CallSpec[None]:
    """Describe a call that pushes chunks."""
    keys = check_texts("put", "keys", keys)
    pages.check_range("put", first_page, len(keys))
    entries = {
        "tokens": check_number("put", "last_chunk_tokens", last_chunk_tokens),
        "last": last_batch,
        **_peer_entries("put", peer),
        **_key_entries("put", keys, request, timeout),
        "target": pages.number,
        "first": first_page,
        **({"trace": trace} if trace else {}),
    }
    return CallSpec("put", entries, timeout, check_done)


def _cut_reason(text: str) -> str:
    """Cut a reason for people to the length that an agent passes on."""
    return text.encode()[:REASON_BYTES].decode(errors="ignore")


def recall(
    peer: Peer, keys: Sequence[str], pages: PagesBase, request: str, first_page: int, timeout: float | None
) -> CallSpec[Reply]:
    """Describe a call that reads chunks back."""
    keys = check_texts("recall", "keys", keys)
    pages.check_range("recall", first_page, len(keys))
    entries = {**_peer_entries("recall", peer), **_key_entries("recall", keys, request, timeout)}
    return CallSpec("recall", {**entries, "target": pages.number, "first": first_page}, timeout, check_hits)


def begin_prefill(
    keys: Sequence[str], request: str, peer: Peer | None, skip_tokens: int, layer_seconds: float, trace: bytes
) -> CallSpec[Reply]:
    """Describe a call that starts a prefill."""
    op = "begin_prefill"
    entries = {
        "keys": check_texts(op, "keys", keys),
        "request": request,
        "skip": check_number(op, "skip_tokens", skip_tokens),
        "layer_ns": to_nanoseconds(op, "layer_seconds", layer_seconds or None),
        **_peer_entries(op, peer),
        **({"trace": trace} if trace else {}),
    }
    return CallSpec(op, entries, 0.0, check_reply)


def end_request(request: str, peer: Peer, code: int, reason: str, timeout: float | None, tenant: str) -> CallSpec[None]:
    """Describe a call that notifies a receiver of the end of a request."""
    entries = {
        "request": request,
        "code": check_number("end", "code", code),
        "reason": _cut_reason(reason),
        "patience_ns": to_nanoseconds("end", "timeout", timeout),
        **_peer_entries("end", peer),
        **({"tenant": tenant} if tenant else {}),
    }
    return CallSpec("end", entries, timeout, check_done)


# ---- receiver ----


def get(keys: Sequence[str], request: str, layered: bool, timeout: float, trace: bytes, domain: str) -> CallSpec[Reply]:
    """Describe a call that returns chunks of the pool."""
    entries = {
        "keys": check_texts("get", "keys", keys),
        "request": request,
        "layered": layered,
        "patience_ns": wait_nanoseconds("get", timeout),
        **_source_entries(trace, domain),
    }
    return CallSpec("get", entries, timeout, check_pages)


def _source_entries(trace: bytes, domain: str) -> dict[str, Any]:
    entries: dict[str, Any] = {"trace": trace} if trace else {}
    if domain:
        entries["domain"] = domain
    return entries


def contains(keys: Sequence[str], domain: str) -> CallSpec[int]:
    """Describe a call that counts available chunks."""

    def read(reply: Reply) -> int:
        return check_reply(reply, Code.NOT_FOUND).answer.hits

    entries = {"keys": check_texts("contains", "keys", keys), **_source_entries(b"", domain)}
    return CallSpec("contains", entries, 0.0, read)


def fetch(keys: Sequence[str], request: str, timeout: float | None, trace: bytes, domain: str) -> CallSpec[Prefix]:
    """Describe a call that shows chunks."""
    entries = {**_key_entries("fetch", keys, request, timeout), **_source_entries(trace, domain)}
    return CallSpec("fetch", entries, timeout, _read_prefix)


def abandon(request: str, reason: str, tenant: str) -> CallSpec[None]:
    """Describe a call that drops the chunks of a request."""
    entries = {"request": request, "reason": _cut_reason(reason), **({"tenant": tenant} if tenant else {})}
    return CallSpec("abandon", entries, 0.0, check_done_or_missing)


# ---- sharing ----


def store(keys: Sequence[str], pages: PagesBase, first_page: int) -> CallSpec[None]:
    """Describe a call that gives pages to the cache."""
    count = len(keys)

    def read(reply: Reply) -> None:
        # The count of an error is the number of chunks that were not stored.
        missing = 0 if reply.answer.code == Code.OK else reply.answer.count or count
        pages.mark_stored(range(first_page, first_page + max(0, count - missing)))
        check_reply(reply)

    return CallSpec("store", _page_entries("store", keys, pages, first_page), 0.0, read)


def share(keys: Sequence[str], pages: PagesBase, first_page: int) -> CallSpec[Reply]:
    """Describe a call that lets peers read pages."""

    def read(reply: Reply) -> Reply:
        return reply if reply.answer.hits else check_reply(reply)

    return CallSpec("share", _page_entries("share", keys, pages, first_page), 0.0, read)


def lookup(keys: Sequence[str]) -> CallSpec[Lookup]:
    """Describe a call that locates chunks here and at directories, whose timeout the agent has configured."""

    def read(reply: Reply) -> Lookup:
        answer = check_reply(reply).answer
        return Lookup(answer.sent, answer.skipped)

    return CallSpec("lookup", {"keys": check_texts("lookup", "keys", keys)}, None, read)


def shared_get(keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None) -> CallSpec[Reply]:
    """Describe a call that returns chunks that peers share."""
    return CallSpec("shared_get", _sharing_entries("shared_get", keys, request, source, timeout), timeout, check_pages)


def lease(keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None) -> CallSpec[Prefix]:
    """Describe a call that acquires read leases at peers."""
    return CallSpec("keep", _sharing_entries("keep", keys, request, source, timeout), timeout, _read_prefix)


def shared_fetch(
    keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None
) -> CallSpec[Prefix]:
    """Describe a call that shows chunks that peers share."""
    return CallSpec(
        "shared_fetch", _sharing_entries("shared_fetch", keys, request, source, timeout), timeout, _read_prefix
    )


# ---- blocks of the engine ----


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
    """Describe a call that registers blocks to be written."""

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
    """Describe a call that keeps what producers lend."""
    return CallSpec(
        "expect",
        _producer_entries("expect", request, producers, transfer, timeout),
        timeout,
        check_done,
    )


def decline_request(
    request: str, producers: Sequence[ProducerPeer], transfer: str, timeout: float | None
) -> CallSpec[None]:
    """Describe a call that declines a request at its producers."""
    return CallSpec(
        "not_needed",
        _producer_entries("not_needed", request, producers, transfer, timeout),
        timeout,
        check_done,
    )


def lend_blocks(
    request: str, blocks: Sequence[Blocks], transfer: str, lease: float | None, epoch: int | None = None
) -> CallSpec[LendResult]:
    """Describe a call that lends blocks."""

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
    """Describe a call that ends the lending of blocks for a request."""
    return CallSpec("aborted", {"request": request, "transfer": transfer}, 0.0, check_done)


# ---- common fields ----


def _peer_entries(op: str, peer: Peer | SharingPeer | None) -> dict[str, Any]:
    """Return the fields of a peer; none for None."""
    if peer is None:
        return {}
    if not hasattr(peer, "host"):
        raise invalid_error(
            op,
            "peer",
            repr(peer)[:60],
            "a kvferry.Peer",
            'give a kvferry.Peer, such as kvferry.Peer("10.0.0.2", 7300, 7400)',
        )
    entries: dict[str, Any] = {"host": peer.host}
    # The agent refuses fields that an operation does not take, and one Peer may serve all operations.
    for name in ("init_port", "alloc_port", *(("query_port",) if op == "recall" else ())):
        entries[name] = check_number(op, f"peer.{name}", getattr(peer, name, 0), PORT)
    return entries


def _key_entries(op: str, keys: Sequence[str], request: str, timeout: float | None) -> dict[str, Any]:
    """Return the fields of chunks."""
    timeout_ns = to_nanoseconds(op, "timeout", timeout)
    return {"keys": check_texts(op, "keys", keys), "request": request, "patience_ns": timeout_ns}


def _page_entries(op: str, keys: Sequence[str], pages: PagesBase, first_page: int) -> dict[str, Any]:
    """Return the fields of pages that chunks fill."""
    keys = check_texts(op, "keys", keys)
    pages.check_range(op, first_page, len(keys))
    for index in range(first_page, first_page + len(keys)):
        pages.check_page(op, index)
    return {"target": pages.number, "first": first_page, "keys": keys}


def _sharing_entries(
    op: str, keys: Sequence[str], request: str, source: SharingPeer | None, timeout: float | None
) -> dict[str, Any]:
    """Return the fields of chunks that peers share."""
    return {**_key_entries(op, keys, request, timeout), **_peer_entries(op, source)}


def _producer_entries(
    op: str, request: str, producers: Sequence[ProducerPeer], transfer: str, timeout: float | None
) -> dict[str, Any]:
    """Return the fields of the producers of a request."""
    return {
        "request": request,
        "transfer": transfer,
        "producers": [str(producer) for producer in check_list(op, "producers", producers)],
        "patience_ns": to_nanoseconds(op, "timeout", timeout),
    }


def _block_entries(op: str, blocks: Sequence[Blocks]) -> dict[str, Any]:
    """Return the fields of blocks."""
    return {
        "groups": [check_number(op, "blocks.group", b.group, PORT) for b in blocks],
        "firsts": [check_number(op, "blocks.first", b.first, U64) for b in blocks],
        "ends": [check_number(op, "blocks.end", b.end, U64) for b in blocks],
        "blocks": [[check_number(op, "blocks.logical", n) for n in b.logical] for b in blocks],
    }


def _read_prefix(reply: Reply) -> Prefix:
    """Read how many chunks a call covered."""
    return Prefix(check_hits(reply).answer.hits, reply.error)

"""What a client can ask for, one function for each: what is checked, what is said on the wire, what an answer means.

What handles can ask for is theirs (holding.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvferry.asking import (
    PORT,
    U64,
    Ask,
    done,
    done_if_there,
    items,
    nanoseconds,
    number_of,
    some_hits,
    some_pages,
    texts,
    waits_of,
    well,
)
from kvferry.codes import Code
from kvferry.errors import wrong
from kvferry.limits import WORDS_BYTES
from kvferry.values import Lookup, Prefix, Received, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvferry.holding import PagesBase
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer
    from kvferry.waiting import Reply


def stats() -> Ask[dict[str, Any]]:
    """Ask for counters."""

    def read(reply: Reply) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(well(reply).answer.stats or b"{}")
        return found

    return Ask("stats", {}, 0.0, read)


# ---- sender ----


def reserve(count: int, patience: float | None) -> Ask[Reply]:
    """Ask for pages."""
    number = number_of("reserve", "count", count)
    return Ask(
        "reserve", {"count": number, "patience_ns": nanoseconds("reserve", "patience", patience)}, patience, well
    )


def put(
    peer: Peer,
    keys: Sequence[str],
    pages: PagesBase,
    request: str,
    first: int,
    tokens: int,
    last: bool,
    patience: float | None,
) -> Ask[None]:
    """Ask for a push."""
    keys = texts("put", "keys", keys)
    pages.use("put", first, len(keys))
    entries = {
        "tokens": number_of("put", "tokens", tokens),
        "last": last,
        **_peer("put", peer),
        **_keyed("put", keys, request, patience),
        "target": pages.number,
        "first": first,
    }
    return Ask("put", entries, patience, done)


def _reason(words: str) -> str:
    """Cut words for people to what an agent passes on."""
    return words.encode()[:WORDS_BYTES].decode(errors="ignore")


def recall(
    peer: Peer, keys: Sequence[str], pages: PagesBase, request: str, first: int, patience: float | None
) -> Ask[Reply]:
    """Ask for chunks back."""
    keys = texts("recall", "keys", keys)
    pages.use("recall", first, len(keys))
    named = {**_peer("recall", peer), **_keyed("recall", keys, request, patience)}
    return Ask("recall", {**named, "target": pages.number, "first": first}, patience, some_hits)


def begin_prefill(keys: Sequence[str], request: str, peer: Peer | None, skip: int, layer_time: float) -> Ask[Reply]:
    """Ask to begin with a request."""
    op = "begin_prefill"
    entries = {
        "keys": texts(op, "keys", keys),
        "request": request,
        "skip": number_of(op, "skip", skip),
        "layer_ns": nanoseconds(op, "layer_time", layer_time or None),
        **_peer(op, peer),
    }
    return Ask(op, entries, 0.0, well)


def end(request: str, peer: Peer, code: int, reason: str, patience: float | None) -> Ask[None]:
    """Ask to have a receiver told how a request ended."""
    entries = {
        "request": request,
        "code": number_of("end", "code", code),
        "reason": _reason(reason),
        "patience_ns": nanoseconds("end", "patience", patience),
        **_peer("end", peer),
    }
    return Ask("end", entries, patience, done)


# ---- receiver ----


def get(keys: Sequence[str], request: str, layered: bool, patience: float) -> Ask[Reply]:
    """Ask for chunks of the pool."""
    named = {"keys": texts("get", "keys", keys), "request": request, "layered": layered}
    return Ask("get", {**named, "patience_ns": waits_of("get", patience)}, patience, some_pages)


def contains(keys: Sequence[str]) -> Ask[int]:
    """Ask what is there."""

    def read(reply: Reply) -> int:
        return well(reply, Code.NOT_FOUND).answer.hits

    return Ask("contains", {"keys": texts("contains", "keys", keys)}, 0.0, read)


def fetch(keys: Sequence[str], request: str, patience: float | None) -> Ask[Prefix]:
    """Ask to be shown chunks."""
    return Ask("fetch", _keyed("fetch", keys, request, patience), patience, _prefix)


def abandon(request: str, reason: str) -> Ask[None]:
    """Ask to give up what is kept for a request."""
    return Ask("abandon", {"request": request, "reason": _reason(reason)}, 0.0, done_if_there)


# ---- sharing ----


def store(keys: Sequence[str], pages: PagesBase, first: int) -> Ask[None]:
    """Ask to make pages the cache's."""
    count = len(keys)

    def read(reply: Reply) -> None:
        # An error counts those that were not stored.
        left = 0 if reply.answer.code == Code.OK else reply.answer.count or count
        pages.stored(range(first, first + max(0, count - left)))
        well(reply)

    return Ask("store", _lent("store", keys, pages, first), 0.0, read)


def share(keys: Sequence[str], pages: PagesBase, first: int) -> Ask[Reply]:
    """Ask to let peers read pages."""

    def read(reply: Reply) -> Reply:
        return reply if reply.answer.hits else well(reply)

    return Ask("share", _lent("share", keys, pages, first), 0.0, read)


def lookup(keys: Sequence[str]) -> Ask[Lookup]:
    """Ask who has chunks, here and at directories, which have as long as is configured."""

    def read(reply: Reply) -> Lookup:
        answer = well(reply).answer
        return Lookup(answer.sent, answer.skipped)

    return Ask("lookup", {"keys": texts("lookup", "keys", keys)}, None, read)


def shared_get(keys: Sequence[str], request: str, source: SharingPeer | None, patience: float | None) -> Ask[Reply]:
    """Ask for chunks that peers share."""
    return Ask("shared_get", _shared("shared_get", keys, request, source, patience), patience, some_pages)


def keep(keys: Sequence[str], request: str, source: SharingPeer | None, patience: float | None) -> Ask[Prefix]:
    """Ask to have peers lend what they share."""
    return Ask("keep", _shared("keep", keys, request, source, patience), patience, _prefix)


def shared_fetch(keys: Sequence[str], request: str, source: SharingPeer | None, patience: float | None) -> Ask[Prefix]:
    """Ask to be shown chunks that peers share."""
    return Ask("shared_fetch", _shared("shared_fetch", keys, request, source, patience), patience, _prefix)


# ---- an engine's own blocks ----


def register(
    request: str,
    producers: Sequence[ProducerPeer],
    blocks: Sequence[Blocks],
    ranks: int,
    stages: int,
    transfer: str,
    engine: str,
    patience: float | None,
    epoch: int | None = None,
) -> Ask[Received]:
    """Ask to have blocks written."""

    def read(reply: Reply) -> Received:
        answer = well(reply).answer
        return Received(answer.hits, answer.held)

    entries = {
        **_errand("register", request, producers, transfer, patience),
        "engine": engine,
        "ranks": number_of("register", "ranks", ranks),
        "stages": number_of("register", "stages", stages),
        **_blocks("register", blocks),
    }
    return Ask("register", entries, patience, read, only=epoch)


def expect(request: str, producers: Sequence[ProducerPeer], transfer: str, patience: float | None) -> Ask[None]:
    """Ask to keep what producers lend."""
    return Ask("expect", _errand("expect", request, producers, transfer, patience), patience, done)


def not_needed(request: str, producers: Sequence[ProducerPeer], transfer: str, patience: float | None) -> Ask[None]:
    """Ask to tell producers that nobody registers."""
    return Ask("not_needed", _errand("not_needed", request, producers, transfer, patience), patience, done)


def finished(
    request: str, blocks: Sequence[Blocks], transfer: str, lease: float | None, epoch: int | None = None
) -> Ask[Written]:
    """Ask to lend blocks."""

    def read(reply: Reply) -> Written:
        answer = well(reply).answer
        return Written(answer.sent, answer.skipped > 0, answer.held)

    entries = {
        "request": request,
        "transfer": transfer,
        "patience_ns": nanoseconds("finished", "lease", lease),
        **_blocks("finished", blocks),
    }
    return Ask("finished", entries, lease, read, only=epoch)


def aborted(request: str, transfer: str) -> Ask[None]:
    """Ask to end what is lent for a request."""
    return Ask("aborted", {"request": request, "transfer": transfer}, 0.0, done)


# ---- what several of them say ----


def _peer(op: str, peer: Peer | SharingPeer | None) -> dict[str, Any]:
    """Name a peer; None is nobody."""
    if peer is None:
        return {}
    if not hasattr(peer, "host"):
        raise wrong(
            op, "peer", repr(peer)[:60], "a kvferry.Peer", 'give one, such as kvferry.Peer("10.0.0.2", 7300, 7400)'
        )
    made: dict[str, Any] = {"host": peer.host}
    # What an operation does not take is refused by the agent, and a peer may be described once for all of them.
    for name in ("init_port", "alloc_port", *(("query_port",) if op == "recall" else ())):
        made[name] = number_of(op, f"peer.{name}", getattr(peer, name, 0), PORT)
    return made


def _keyed(op: str, keys: Sequence[str], request: str, patience: float | None) -> dict[str, Any]:
    """Name chunks."""
    waits = nanoseconds(op, "patience", patience)
    return {"keys": texts(op, "keys", keys), "request": request, "patience_ns": waits}


def _lent(op: str, keys: Sequence[str], pages: PagesBase, first: int) -> dict[str, Any]:
    """Name pages that chunks fill."""
    keys = texts(op, "keys", keys)
    pages.use(op, first, len(keys))
    for index in range(first, first + len(keys)):
        pages.look_at(op, index)
    return {"target": pages.number, "first": first, "keys": keys}


def _shared(
    op: str, keys: Sequence[str], request: str, source: SharingPeer | None, patience: float | None
) -> dict[str, Any]:
    """Name chunks that peers share."""
    return {**_keyed(op, keys, request, patience), **_peer(op, source)}


def _errand(
    op: str, request: str, producers: Sequence[ProducerPeer], transfer: str, patience: float | None
) -> dict[str, Any]:
    """Name producers of a request."""
    return {
        "request": request,
        "transfer": transfer,
        "producers": [str(producer) for producer in items(op, "producers", producers)],
        "patience_ns": nanoseconds(op, "patience", patience),
    }


def _blocks(op: str, blocks: Sequence[Blocks]) -> dict[str, Any]:
    """Name blocks."""
    return {
        "groups": [number_of(op, "blocks.group", b.group, PORT) for b in blocks],
        "firsts": [number_of(op, "blocks.first", b.first, U64) for b in blocks],
        "ends": [number_of(op, "blocks.end", b.end, U64) for b in blocks],
        "blocks": [[number_of(op, "blocks.logical", n) for n in b.logical] for b in blocks],
    }


def _prefix(reply: Reply) -> Prefix:
    """Read how far a call came."""
    return Prefix(some_hits(reply).answer.hits, reply.error)

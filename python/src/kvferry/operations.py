"""What calls are on the wire: which entries each operation has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, Why, error_of, wrong
from kvferry.values import Prefix, Received, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvferry.handles import PagesBase
    from kvferry.messages import Answer
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer

_U32, _U64, _PORT = (1 << 32) - 1, (1 << 64) - 1, (1 << 16) - 1

# Codes that say that the call is of no use as it is, or that nobody serves. All others are a miss where a call may
# come to less than it was asked for.
_HARD = frozenset(
    (Code.INVALID, Code.TOO_LARGE, Code.UNSUPPORTED, Code.MALFORMED, Code.MISMATCH, Code.CLOSED, Code.FAILED)
)


@dataclass(frozen=True)
class Ask:
    """A call that is to be made."""

    op: str
    entries: Mapping[str, Any]
    # How long the agent may take, in seconds; None: as is configured there.
    seconds: float | None = 0.0


def number_of(op: str, name: str, value: int, most: int = _U32) -> int:
    """Check a number."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise wrong(op, name, repr(value), f"0 to {most}", "give a number in that range")
    return value


def texts(op: str, name: str, values: Sequence[str]) -> list[str]:
    """Check a list of texts. One text is a sequence of texts too, and never what was meant."""
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise wrong(op, name, repr(values)[:60], "a list of texts", "name each by a text")
    return list(values)


def nanoseconds(op: str, name: str, seconds: float | None) -> int:
    """Convert a time. None is left to the node; what is asked for is never nothing."""
    if seconds is None:
        return 0
    if not 0 <= seconds <= 1 << 32:
        raise wrong(op, name, f"{seconds!r}", "seconds, 0 or more", "give a time, or None for what is configured")
    return max(1, int(seconds * 1e9))


def peer_entries(op: str, peer: Peer | SharingPeer | None) -> dict[str, Any]:
    """Name a peer; None is nobody."""
    if peer is None:
        return {}
    made: dict[str, Any] = {"host": peer.host}
    # What an operation does not take is refused by the agent, and a peer may be described once for all of them.
    for name in ("init_port", "alloc_port", *(("query_port",) if op == "recall" else ())):
        made[name] = number_of(op, f"peer.{name}", getattr(peer, name, 0), _PORT)
    return made


def ask(op: str, seconds: float | None = 0.0, **entries: Any) -> Ask:
    """Ask for something that the agent answers at once, or in so many seconds."""
    return Ask(op, entries, seconds)


def keyed(op: str, keys: Sequence[str], request: str, patience: float | None, **entries: Any) -> Ask:
    """Ask for chunks."""
    named = {"keys": texts(op, "keys", keys), "request": request, **entries}
    return Ask(op, {**named, "patience_ns": nanoseconds(op, "patience", patience)}, patience)


def get(keys: Sequence[str], request: str, layered: bool, patience: float) -> Ask:
    """Ask for chunks of the pool. Here no patience is none: it is never left to the node."""
    entries = {"keys": texts("get", "keys", keys), "request": request, "layered": layered}
    waits = nanoseconds("get", "patience", patience) if patience else 0
    return Ask("get", {**entries, "patience_ns": waits}, patience)


def blocks_entries(op: str, blocks: Sequence[Blocks]) -> dict[str, Any]:
    """Name blocks."""
    return {
        "groups": [number_of(op, "blocks.group", b.group, _PORT) for b in blocks],
        "firsts": [number_of(op, "blocks.first", b.first, _U64) for b in blocks],
        "ends": [number_of(op, "blocks.end", b.end, _U64) for b in blocks],
        "blocks": [[number_of(op, "blocks.logical", n) for n in b.logical] for b in blocks],
    }


def failure(op: str, answer: Answer) -> Error:
    """Make the error of an answer."""
    why = Why(
        count=answer.count,
        peer=answer.peer,
        stage=answer.stage,
        field=answer.field,
        ours=answer.ours,
        theirs=answer.theirs,
        said=answer.said,
        remedy=answer.remedy,
    )
    return error_of(op, Code.of(answer.code), why)


def short_of(op: str, answer: Answer, came: int) -> Error | None:
    """Say why a call came to less than it was asked for. It raises where the call itself is at fault."""
    if answer.code == Code.OK:
        return None
    error = failure(op, answer)
    if error.code in _HARD and not came:
        raise error
    return error


def unanswered(op: str, seconds: float) -> Error:
    """Make the error of a call that the agent did not answer."""
    remedy = "the agent is stopped or overloaded, or away; treat it as a miss, and look at the agent"
    why = Why(stage="agent", field="the call", theirs=f"without an answer for {seconds:g} s", remedy=remedy)
    return error_of(op, Code.EXPIRED, why)


# ---- one function for each operation that takes more than its subject ----


def stats() -> Ask:
    """Ask for counters."""
    return ask("stats")


def subject(op: str, number: int, patience: float | None = 0.0) -> Ask:
    """Ask for something that is about what a call brought, and takes a patience."""
    waits = 0 if patience == 0 else nanoseconds(op, "patience", patience)
    name = "prefill" if op in ("preempt_prefill", "finish_prefill", "drop_prefill") else "target"
    return ask(op, patience, patience_ns=waits, **{name: number})


def release(number: int, patience: float | None) -> Ask:
    """Ask to take pages back. How long that may take the agent is not told: it ends when it can."""
    nanoseconds("release", "patience", patience)
    return ask("release", patience, target=number)


def reserve(count: int, patience: float | None) -> Ask:
    """Ask for pages."""
    number = number_of("reserve", "count", count)
    return ask("reserve", patience, count=number, patience_ns=nanoseconds("reserve", "patience", patience))


def put(
    peer: Peer,
    keys: Sequence[str],
    pages: PagesBase,
    request: str,
    first: int,
    tokens: int,
    last: bool,
    patience: float | None,
) -> Ask:
    """Ask for a push."""
    pages.use("put", first, len(keys))
    rest = {"tokens": number_of("put", "tokens", tokens), "last": last, **peer_entries("put", peer)}
    return keyed("put", keys, request, patience, target=pages.number, first=first, **rest)


def recall(peer: Peer, keys: Sequence[str], pages: PagesBase, request: str, first: int, patience: float | None) -> Ask:
    """Ask for chunks back."""
    pages.use("recall", first, len(keys))
    named = peer_entries("recall", peer)
    return keyed("recall", keys, request, patience, target=pages.number, first=first, **named)


def begin_prefill(keys: Sequence[str], request: str, peer: Peer | None, skip: int, layer_time: float) -> Ask:
    """Ask to begin with a request."""
    op = "begin_prefill"
    return ask(
        op,
        keys=texts(op, "keys", keys),
        request=request,
        skip=number_of(op, "skip", skip),
        layer_ns=nanoseconds(op, "layer_time", layer_time or None),
        **peer_entries(op, peer),
    )


def save_layer(prefill: int, layer: int, tokens: int, pages: PagesBase | None) -> Ask:
    """Ask to push a layer."""
    op = "save_layer"
    if pages is not None:
        pages.look(op)
    return ask(
        op,
        prefill=prefill,
        target=0 if pages is None else pages.number,
        layer=number_of(op, "layer", layer),
        tokens=number_of(op, "tokens", tokens),
    )


def contains(keys: Sequence[str]) -> Ask:
    """Ask what is there."""
    return ask("contains", keys=texts("contains", "keys", keys))


def lend(op: str, keys: Sequence[str], pages: PagesBase, first: int) -> Ask:
    """Ask to store or to share pages."""
    pages.use(op, first, len(keys))
    for index in range(first, first + len(keys)):
        pages.look_at(op, index)
    return ask(op, target=pages.number, first=first, keys=texts(op, "keys", keys))


def lookup(keys: Sequence[str]) -> Ask:
    """Ask who has chunks, here and at directories, which have as long as is configured."""
    return ask("lookup", None, keys=texts("lookup", "keys", keys))


def shared(op: str, keys: Sequence[str], request: str, source: SharingPeer | None, patience: float | None) -> Ask:
    """Ask for chunks that peers share."""
    return keyed(op, keys, request, patience, **peer_entries(op, source))


def register(
    request: str,
    producers: Sequence[ProducerPeer],
    blocks: Sequence[Blocks],
    ranks: int,
    stages: int,
    transfer: str,
    engine: str,
    patience: float | None,
) -> Ask:
    """Ask to have blocks written."""
    return ask(
        "register",
        patience,
        request=request,
        transfer=transfer,
        engine=engine,
        producers=[str(producer) for producer in producers],
        ranks=number_of("register", "ranks", ranks),
        stages=number_of("register", "stages", stages),
        patience_ns=nanoseconds("register", "patience", patience),
        **blocks_entries("register", blocks),
    )


def errand(op: str, request: str, producers: Sequence[ProducerPeer], transfer: str, patience: float | None) -> Ask:
    """Ask to tell producers something."""
    return ask(
        op,
        patience,
        request=request,
        transfer=transfer,
        producers=[str(producer) for producer in producers],
        patience_ns=nanoseconds(op, "patience", patience),
    )


def finished(request: str, blocks: Sequence[Blocks], transfer: str, lease: float | None) -> Ask:
    """Ask to lend blocks."""
    return ask(
        "finished",
        lease,
        request=request,
        transfer=transfer,
        patience_ns=nanoseconds("finished", "lease", lease),
        **blocks_entries("finished", blocks),
    )


# ---- what answers mean ----


def stats_of(answer: Answer) -> dict[str, Any]:
    """Read counters."""
    found: dict[str, Any] = json.loads(answer.stats or b"{}")
    return found


def well(op: str, answer: Answer, *also: Code) -> Answer:
    """Raise where a call did not end as wanted."""
    if answer.code != Code.OK and answer.code not in also:
        raise failure(op, answer)
    return answer


def stored(answer: Answer, pages: PagesBase, first: int, count: int) -> None:
    """Note which pages the cache has now. An error counts those that were not stored."""
    left = 0 if answer.code == Code.OK else answer.count or count
    pages.stored(range(first, first + max(0, count - left)))
    well("store", answer)


def prefix_of(op: str, answer: Answer) -> Prefix:
    """Read how far a call came."""
    return Prefix(answer.hits, short_of(op, answer, answer.hits))


def share_short(answer: Answer) -> Error | None:
    """Say why not all is shared; raise where nothing is."""
    if answer.code != Code.OK and not answer.hits:
        raise failure("share", answer)
    return None if answer.code == Code.OK else failure("share", answer)


def received(answer: Answer) -> Received:
    """Read how a registration ended."""
    return Received(answer.hits, answer.held)


def written(answer: Answer) -> Written:
    """Read how blocks that were lent ended."""
    return Written(answer.sent, answer.skipped > 0, answer.held)


def nothing(_: Answer) -> None:
    """Read an answer that says nothing more."""

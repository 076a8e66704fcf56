"""The message of each method of the clients, and how it reads a reply; both clients are tested with these cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvferry import Blocks, Code, Lookup, Peer, Prefix, ProducerPeer, SharingPeer

if TYPE_CHECKING:
    from collections.abc import Callable

PEER = Peer("127.0.0.1", 7300, 7400, 7600)  # The last port is used by recalls only.
PEER_ENTRIES = {"host": "127.0.0.1", "init_port": 7300, "alloc_port": 7400}
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Case:
    """One call of a method. With takes_pages it also gets pages whose call has the number 1."""

    method: str
    arguments: dict[str, Any]
    message: dict[str, Any]
    answer: dict[str, Any]
    inspect: Callable[[Any], Any]
    expected: Any
    takes_pages: bool = False
    op: str = ""

    @property
    def name(self) -> str:
        return self.op or self.method


def identity(result: Any) -> Any:
    return result


def count_and_code(result: Any) -> Any:
    return len(result), result.shortfall and result.shortfall.code


CASES = [
    Case("stats", {}, {}, {"stats": b'{"pages": 3}'}, identity, {"pages": 3}),
    Case(
        "reserve",
        {"count": 2, "timeout": 1.5},
        {"count": 2, "patience_ns": 3 * SECOND // 2},
        {"pages": (4, 7), "lengths": (1, 1)},
        lambda r: (r.numbers, r.lengths, r.writable),
        ((4, 7), (4096, 4096), True),
    ),
    Case(
        "put",
        {"peer": PEER, "keys": ["a", "b"], "request": "r", "first_page": 1, "last_chunk_tokens": 17,
         "last_batch": True, "timeout": 2.0, "trace": bytes(range(25))},
        {**PEER_ENTRIES, "target": 1, "keys": ["a", "b"], "request": "r", "first": 1, "tokens": 17, "last": True,
         "patience_ns": 2 * SECOND, "trace": bytes(range(25))},
        {"sent": 1, "skipped": 1},
        lambda r: (r.sent, r.skipped, r.in_use),
        (1, 1, False),
        takes_pages=True,
    ),
    Case(
        "recall",
        {"peer": Peer("127.0.0.1", 7300, 7400, 7600), "keys": ["a", "b"]},
        {**PEER_ENTRIES, "query_port": 7600, "target": 1, "keys": ["a", "b"]},
        {"hits": 1, "pages": (0, 1), "lengths": (100, 0)},
        lambda r: (r.hits, r.lengths, r.shortfall),
        (1, (100,), None),
        takes_pages=True,
    ),
    Case(
        "begin_prefill",
        {"keys": ["a"], "request": "r", "peer": PEER, "skip_tokens": 256, "layer_seconds": 0.25,
         "trace": bytes(range(25))},
        {**PEER_ENTRIES, "keys": ["a"], "request": "r", "skip": 256, "layer_ns": SECOND // 4,
         "trace": bytes(range(25))},
        {},
        lambda r: (r.request, r.released),
        ("r", False),
    ),
    Case(
        "get",
        {"keys": ["a", "b"], "request": "r", "layered": True, "timeout": 1.0, "trace": bytes(range(25))},
        {"keys": ["a", "b"], "request": "r", "layered": True, "patience_ns": SECOND, "trace": bytes(range(25))},
        {"code": 13, "pages": (3,), "lengths": (9,)},
        count_and_code,
        (1, Code.NOT_FOUND),
    ),
    Case("get", {"keys": ["a"]}, {"keys": ["a"]}, {"code": 21}, count_and_code, (0, Code.LAPSED)),
    Case("contains", {"keys": ["a"]}, {"keys": ["a"]}, {"code": 13, "hits": 0}, identity, 0),
    Case("contains", {"keys": ["a"]}, {"keys": ["a"]}, {"hits": 1}, identity, 1),
    Case("contains", {"keys": ["a"], "domain": "dns"}, {"keys": ["a"], "domain": "dns"}, {"hits": 1}, identity, 1),
    Case(
        "get",
        {"keys": ["a"], "domain": "spiffe://other"},
        {"keys": ["a"], "domain": "spiffe://other"},
        {"pages": (3,), "lengths": (9,)},
        count_and_code,
        (1, None),
    ),
    Case("abandon", {"request": "r"}, {"request": "r"}, {"code": 13}, identity, None),
    Case("abandon", {"request": "r", "reason": "other"}, {"request": "r", "reason": "other"}, {}, identity, None),
    Case("store", {"keys": ["a"], "first_page": 1}, {"keys": ["a"], "first": 1, "target": 1}, {}, identity, None, True),
    Case(
        "share",
        {"keys": ["a", "b"]},
        {"keys": ["a", "b"], "target": 1},
        {"hits": 1, "code": 8},
        lambda r: (r.hits, r.shortfall.code),
        (1, Code.TOO_MANY),
        takes_pages=True,
    ),
    Case("lookup", {"keys": ["a"]}, {"keys": ["a"]}, {"sent": 1, "skipped": 2}, identity, Lookup(1, 2)),
    Case(
        "shared_get",
        {"keys": ["a"], "request": "r", "source": SharingPeer("h", 8200), "timeout": 1.0},
        {"keys": ["a"], "request": "r", "host": "h", "init_port": 8200, "patience_ns": SECOND},
        {"pages": (3,), "lengths": (9,)},
        count_and_code,
        (1, None),
    ),
    Case("lease", {"keys": ["a"], "request": "r"}, {"keys": ["a"], "request": "r"}, {"hits": 1}, identity, Prefix(1),
         op="keep"),
    Case(
        "decline_request",
        {"request": "r", "producers": [ProducerPeer("h", 1, 2)], "transfer": "t"},
        {"request": "r", "producers": ["h:1:2"], "transfer": "t"},
        {},
        identity,
        None,
        op="not_needed",
    ),
    Case("abort_request", {"request": "r", "transfer": "t"}, {"request": "r", "transfer": "t"}, {}, identity, None,
         op="aborted"),
]  # fmt: skip

# Methods that return at once and have a result later.
PENDING_CASES = [
    Case(
        "register_blocks",
        {
            "request": "r", "transfer": "t", "engine": "e", "producers": [ProducerPeer("h", 1, 2)], "producer_ranks": 2,
            "blocks": [Blocks([1, 2]), Blocks([3], 1, 16, 20)], "timeout": 1.0,
        },
        {
            "request": "r", "transfer": "t", "engine": "e", "producers": ["h:1:2"], "ranks": 2, "stages": 1,
            "groups": [0, 1], "firsts": [0, 16], "ends": [0, 20], "blocks": [[1, 2], [3]], "patience_ns": SECOND,
        },
        {"hits": 3},
        lambda r: (r.pages, r.in_use),
        (3, False),
        op="register",
    ),
    Case("expect_request", {"request": "r", "producers": [ProducerPeer("h", 1, 2)]},
         {"request": "r", "producers": ["h:1:2"]}, {}, identity, None, op="expect"),
    Case(
        "end_request",
        {"peer": PEER, "request": "r", "code": Code.NO_MEMORY, "reason": "é" * 200, "timeout": 1.0},
        {**PEER_ENTRIES, "request": "r", "code": 6, "reason": "é" * 120, "patience_ns": SECOND},
        {},
        identity,
        None,
        op="end",
    ),
    Case(
        "lend_blocks",
        {"request": "r", "blocks": [Blocks([1])], "lease": 1.0},
        {"request": "r", "groups": [0], "firsts": [0], "ends": [0], "blocks": [[1]], "patience_ns": SECOND},
        {"sent": 2, "skipped": 1},
        lambda r: (r.pages, r.declined, r.in_use),
        (2, True, False),
        op="finished",
    ),
]  # fmt: skip


def answer_case(case: Case) -> Callable[[Any, Any], None]:
    """Return a function that answers as a case requires, and everything else as the model does."""
    from model_agent import execute

    def act(agent: Any, task: Any) -> None:
        if task.op == case.name and task.answer is None and (case.method != "reserve" or task.number > 1):
            agent.answer(task.number, **case.answer)
        else:
            execute(agent, task)

    return act


def answer_code(op: str, code: Code) -> Callable[[Any, Any], None]:
    """Return a function that answers an operation with a code."""
    return answer_case(Case(op, {}, {}, {"code": int(code)}, identity, None))


def call_entries(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a call without the common ones."""
    return {name: value for name, value in message.items() if name not in ("type", "id", "op", "done")}

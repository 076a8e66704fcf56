"""Tests of how figures are made, and of engines that take turns: they are played by small programs."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import pytest

from children import Child, GoneError
from served import Served, Spread, Way, copied, kv_bytes, measured, order, ratios, table

# As long as a small program may take to answer on a busy machine, in seconds.
PATIENCE = 60.0

WAYS = ("push", "pull", "nixl-pull", "nixl-push")

# An engine whose tokens are the prompt's sum; a decode engine adds what its parameters carry, which stands for KV.
ENGINE = """
import json, sys, time
role, count = sys.argv[1], 0
def say(**what): print(json.dumps(what), flush=True)
say(op="ready")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "stop": break
    if asked["op"] == "metrics":
        say(op="metrics", counts={"saved_bytes" if role == "prefill" else "loaded_bytes": count})
        continue
    name, params = asked["id"], asked["kv_transfer_params"]
    if params: count += 100
    tokens = [sum(asked["prompt"]) + (params or {}).get("kv", 0)]
    why = "error" if "bad" in role else "length"
    say(op="done", id=name, tokens=tokens, finish_reason=why, kv_transfer_params={"kv": 0}, first_at=time.monotonic())
"""


def asked() -> argparse.Namespace:
    """Make a command line."""
    return argparse.Namespace(patience=PATIENCE, new_tokens=4, rounds=2, warm=1, lengths=[3])


def child(directory: Path, role: str) -> Child:
    """Start a small program."""
    return Child(role, [sys.executable, "-c", ENGINE, role], directory / f"{role}.log")


def test_ratios_are_of_the_same_prompt() -> None:
    """A slow round is slow for both: the ratio of medians would say something else."""
    served = [
        Served(way, 10, round_, whole, whole / 2, 0)
        for round_, times in enumerate([(1.0, 2.0), (10.0, 30.0), (2.0, 2.0)])
        for way, whole in zip(("computed", "push"), times, strict=True)
    ]
    assert ratios(served, "push", "computed", 10, "whole") == Spread(2.0, 1.0, 3.0)
    assert ratios(served[:-1], "push", "computed", 10, "decode") == Spread(2.5, 2.0, 3.0)
    assert ratios(served, "push", "nixl-pull", 10, "whole") is None
    assert ratios(served, "push", "computed", 11, "whole") is None


def test_prompts_fill_whole_blocks() -> None:
    """The last one is moved whole."""
    assert [kv_bytes(length, 10) for length in (1, 128, 129)] == [1280, 1280, 2560]


@pytest.mark.parametrize(
    ("counted", "plane", "said"),
    [
        ({"saved_bytes": 200, "loaded_bytes": 200}, "shm", "3.00 copies"),
        ({"saved_bytes": 200, "loaded_bytes": 200}, "tcp", "4.00 copies"),
        ({"saved_bytes": 400, "loaded_bytes": 200}, "shm", "5.00 copies"),
        ({"nixl_bytes_transferred_sum": 300}, "shm", "1.50 by libnixl"),
        ({}, "shm", ""),
    ],
)
def test_copies_are_counted_for_each_byte_that_was_delivered(counted: dict[str, float], plane: str, said: str) -> None:
    """What was put twice was copied twice."""
    assert copied(counted, 200, plane) == said


def test_all_ways_have_their_turn_in_another_order() -> None:
    """Who is first is so by chance, the same in each run."""
    orders = [tuple(order(WAYS, seed)) for seed in range(40)]
    assert orders == [tuple(order(WAYS, seed)) for seed in range(40)]
    assert len(set(orders)) > 10
    assert all(len(set(one)) == 4 for one in orders)


def test_a_table_has_a_row_for_each_length_and_way() -> None:
    """What cannot be said stays empty."""
    served = [Served("computed", 100, 0, 4.0, 4.0, 0), Served("push", 100, 0, 5.0, 0.5, 1280)]
    rows = table(served, {"push": "3.00 copies"}, 10).splitlines()
    assert len(rows) == 4
    cells = [cell.strip() for cell in rows[3].strip("|").split("|")]
    assert cells[:2] == ["100", "push"]
    assert cells[2] == "5000 (5000 to 5000)"
    assert [cells[3], cells[5]] == ["1.25 (1.25 to 1.25)", "0.12 (0.12 to 0.12)"]
    assert cells[6:] == ["", "1.00 (1.00 to 1.00)", "3.00 copies"]


def test_ways_serve_in_turns_while_others_are_paused(tmp_path: Path) -> None:
    """Every prompt by every way; what is counted is between the first and the last of them."""
    with (
        child(tmp_path, "single") as single,
        child(tmp_path, "prefill") as prefill,
        child(tmp_path, "decode") as decode,
    ):
        ways = [
            Way("computed", {"single": single}, asked()),
            Way("nixl-pull", {"prefill": prefill, "decode": decode}, asked()),
        ]
        for way in ways:
            way.ready()
        served, _ = measured(asked(), ways, "shm", itertools.count(1), 10)
        counted = ways[1].counted(99)
    assert [(one.way, one.round) for one in sorted(served, key=lambda one: (one.way, one.round))] == [
        ("computed", 0),
        ("computed", 1),
        ("nixl-pull", 0),
        ("nixl-pull", 1),
    ]
    for one in served:
        assert 0 < one.decode <= one.whole
    # A request to warm up and two that are measured, at each engine.
    assert counted == {"saved_bytes": 300, "loaded_bytes": 300}


def test_a_request_that_failed_ends_the_run(tmp_path: Path) -> None:
    """Its time would mean nothing. To warm up it may."""
    with child(tmp_path, "bad") as bad:
        way = Way("computed", {"single": bad}, asked())
        way.ready()
        way.serve([1], 1, 0, warm=True)
        with pytest.raises(GoneError, match="finished for error"):
            way.serve([1], 2, 0)


def test_other_tokens_end_the_run(tmp_path: Path) -> None:
    """Whoever has them first is no faster."""
    with child(tmp_path, "one") as one, child(tmp_path, "two") as two:
        ways = [Way(name, {"single": engine}, asked()) for name, engine in (("computed", one), ("push", two))]
        for way in ways:
            way.ready()
        ways[1]._have = lambda *_, **__: {  # type: ignore[method-assign]
            "finish_reason": "length",
            "tokens": [0],
            "first_at": 1.0,
            "kv_transfer_params": None,
        }
        with pytest.raises(GoneError, match="tokens differ"):
            measured(asked(), ways, "shm", itertools.count(1), 10)

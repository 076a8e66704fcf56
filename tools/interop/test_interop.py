"""Tests of what needs no engine: engines are played by small programs."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import interop
from children import Child, GoneError, SilentError
from interop import Between, Direct, Pair, Trial, batches, judge, prompt, table

# As long as a small program may take to answer on a busy machine, in seconds.
PATIENCE = 60.0

# An engine that answers a prompt by its sum; a decode engine adds what its parameters carry, which stands for KV.
ENGINE = """
import json, sys
role = sys.argv[1]
def say(**what): print(json.dumps(what), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "stop": break
    if asked["op"] == "abort": continue
    name, params = asked["id"], asked["kv_transfer_params"]
    if "mute" in name and role == "decode": continue
    say(op="begun", id=name)
    said = {"remote_engine_id": "p", "remote_request_id": name + "-0123abcd", "kv": sum(asked["prompt"])}
    tokens = [sum(asked["prompt"]), params.get("kv", sum(asked["prompt"]))]
    say(op="done", id=name, tokens=tokens, finish_reason="length", kv_transfer_params=said, cached_tokens=0, seconds=0)
"""

# It passes on what it is told, and says what it was.
BETWEEN = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "stop": break
    print(json.dumps({"op": "note of another"}))
    if asked["op"] == "start": told = {"op": "started"}
    elif asked.get("id") == "bad": told = {"op": "error", "id": "bad", "error": "no room"}
    elif asked["op"] == "relay": told = {"op": "relay", "id": asked["id"], "kv_transfer_params": asked["prefill"]}
    else: told = {"op": "done", "id": asked["id"], "note": f"answered {asked['answered']}"}
    print(json.dumps(told), flush=True)
"""

FACTS = {"engine_id": "p", "host": "127.0.0.1", "port": 5600, "tp_size": 1}


def child(directory: Path, code: str, *more: str) -> Child:
    """Start a small program."""
    return Child("it", [sys.executable, "-c", code, *more], directory / f"{'-'.join(more) or 'it'}.log")


def test_batches_never_use_a_name_twice() -> None:
    """An engine may remember a request of an earlier batch."""
    names = [t.name for way in ("direct", "between") for b in batches(way, [100, 128, 257]) for t in b]
    assert len(names) == len(set(names)) == 2 * 2 * 3 * 3


def test_names_have_no_end_that_an_engine_takes_off() -> None:
    """Engines pair requests by their names without a hyphen and 8 hexadecimal digits at the end."""
    names = [t.name for b in batches("direct", [1] * 30) for t in b]
    assert not [n for n in names if re.search(r"-[0-9a-fA-F]{8}$", n)]


def test_controls_differ_in_one_token() -> None:
    """Every prompt has its control, with either engine first."""
    controls = [t for b in batches("direct", [100, 257]) for t in b if t.given is not None]
    assert [len(t.prompt) for t in controls] == [100, 257, 100, 257]
    for trial in controls:
        assert trial.given is not None
        assert [a == b for a, b in zip(trial.given, trial.prompt, strict=True)].count(False) == 1


def test_ports_are_free_and_none_that_a_system_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is taken is passed over."""
    monkeypatch.setattr(interop, "PORTS", (21000, 21100))
    first = interop.free_ports(2)
    assert len(set(first)) == 2
    assert all(21000 <= port < 21100 for port in first)
    with socket.create_server((interop.HOST, first[0])):
        assert first[0] not in interop.free_ports(50)


def test_prompts_repeat_nothing() -> None:
    """A block at the wrong place must be a wrong block. The last two tokens of the vocabulary end a text."""
    pairs = set()
    for seed in range(1, 6):
        tokens = prompt(seed, 1000)
        assert all(0 <= token < 318 for token in tokens)
        assert len({tuple(tokens[i : i + 4]) for i in range(997)}) == 997
        pairs.add(tuple(tokens[:4]))
    assert len(pairs) == 5


@pytest.mark.parametrize(
    ("tokens", "reason", "given", "verdict", "good"),
    [
        ([1, 2, 3], "length", None, "SAME", True),
        ([1, 2, 4], "length", None, "DIFF", False),
        ([1, 2], "length", None, "DIFF", False),
        ([], "error", None, "FAILED", False),
        (None, "", None, "NO ANSWER", False),
        ([1, 2, 4], "length", [9], "DIFF", True),
        ([1, 2, 3], "length", [9], "SAME", False),
        (None, "", [9], "NO ANSWER", False),
    ],
)
def test_judgement(tokens: list[int] | None, reason: str, given: list[int] | None, verdict: str, good: bool) -> None:
    """Only equal tokens are the same, and a control that cannot be judged is not good."""
    done = tokens if tokens is None else {"tokens": tokens, "finish_reason": reason, "seconds": 1, "cached_tokens": 0}
    outcome = judge(Trial("r", [1], "prefill", given), [1, 2, 3], done, 1.0)
    assert (outcome.verdict, outcome.good) == (verdict, good)
    assert ("<--" in table([outcome])) is not good


@pytest.mark.parametrize("first", ["prefill", "decode"])
@pytest.mark.parametrize("between", [False, True])
def test_both_ways_through_played_engines(tmp_path: Path, first: str, between: bool) -> None:
    """Three at once: one that must be the same, a control, and one that is never answered."""
    tried = [Trial("a", [1, 2], first), Trial("b", [1, 2], first, [5, 6]), Trial("mute", [1, 2], first)]
    with (
        child(tmp_path, ENGINE, "prefill") as p,
        child(tmp_path, ENGINE, "decode") as d,
        child(tmp_path, BETWEEN) as b,
    ):
        route = Between(b, FACTS, FACTS, PATIENCE) if between else Direct()
        pair = Pair(p, d, FACTS, route, 2, PATIENCE)
        outcomes = pair.run(tried[:2], {(1, 2): [3, 3]})
        pair.patience = 0.1  # For what never comes.
        outcomes += pair.run(tried[2:], {(1, 2): [3, 3]})
    # Where decode is first nobody knows yet what prefill will have.
    assert [o.verdict for o in outcomes] == ["SAME", "DIFF" if first == "prefill" else "SAME", "NO ANSWER"]
    notes = [o.notes[-1] for o in outcomes]
    assert (notes[::2] == ["answered True", "answered False"]) is between


def test_an_error_of_what_stands_between_ends_the_run(tmp_path: Path) -> None:
    """It says why."""
    with child(tmp_path, BETWEEN) as b:
        route = Between(b, FACTS, FACTS, PATIENCE)
        with pytest.raises(GoneError, match="no room"):
            route.relay(Trial("bad", [1], "prefill"), {})


def test_silence_and_death_are_told_apart(tmp_path: Path) -> None:
    """Who is silent may still answer; of who is gone the last words are told."""
    with child(tmp_path, "import sys; sys.stdin.readline(); sys.exit('out of memory')") as it:
        with pytest.raises(SilentError):
            it.wait("ready", 0.01)
        it.say("go")
        for _ in range(2):
            with pytest.raises(GoneError, match="out of memory"):
                it.wait("ready", PATIENCE)


@pytest.mark.parametrize("said", ["loading...", "[1]", json.dumps({"id": "a"})])
def test_what_is_no_message_is_an_error(tmp_path: Path, said: str) -> None:
    """It is not skipped: who prints to the wrong place would else be waited for."""
    with child(tmp_path, f"print({said!r})") as it, pytest.raises(GoneError, match="not a message"):
        it.wait("ready", PATIENCE)


def test_messages_are_kept_for_who_waits_for_them(tmp_path: Path) -> None:
    """Requests are answered in any order."""
    said: list[dict[str, Any]] = [{"op": "done", "id": i} for i in ("a", "b", "c")]
    with child(tmp_path, "\n".join(f"print({json.dumps(s)!r})" for s in said)) as it:
        for name in ("c", "a", "b"):
            assert it.wait("done", PATIENCE, id=name)["id"] == name

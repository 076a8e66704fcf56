"""Moves KV from one real vLLM engine to another, with or without something between, and compares the tokens.

usage: interop.py --work DIRECTORY [--between COMMAND] [--lengths N,N,...] [--new-tokens N] ...

1. A single engine answers all prompts: the reference.
2. A prefill and a decode engine, both with NixlPushConnector, answer them together: one by one, then all at once. Every
   prompt is tried with the prefill engine first, and with the decode engine first: its blocks then wait for their KV.
3. A control: the prefill engine is given a prompt that differs in one token, so that the decode engine gets KV that is
   slightly wrong. Its tokens must not be the reference's. Else equal tokens would prove nothing.

With --between a program stands between the two: the prefill engine pushes to it, and it to the decode engine. It is
talked to by JSON, one message a line, on its standard input and output:

    > {"op": "start", "prefill": ENGINE, "decode": ENGINE}
    < {"op": "started"}
    > {"op": "relay", "id": ID, "tokens": N, "first": "prefill" or "decode", "prefill": PARAMS}
    < {"op": "relay", "id": ID, "kv_transfer_params": PARAMS}
    > {"op": "done", "id": ID, "answered": BOOL}
    < {"op": "done", "id": ID, "note": TEXT}
    > {"op": "stop"}        and the input ends; so does the program

ENGINE has engine_id, host, port (of the side channel), tp_size, block_size (in tokens), num_blocks. PARAMS are vLLM's
kv_transfer_params of a request. Those of the prefill engine are its answer, if it is first, with its
remote_request_id: ID and a suffix. If it is not first, they are what is known of it: remote_request_id is then ID
without the suffix, and the prompt is given to it once the decode engine waits. Those that the program answers go to the
decode engine: remote_engine_id, remote_host, remote_port, tp_size and remote_request_id name the program. It answers
at once, before any KV has come. ID is the base of both engines' ids of the request. "done" says that the decode engine
has answered, or that it is waited for no more (answered is false): the program lets go of the request. At any time it
may say {"op": "error", "id": ID, "error": TEXT}, without an id if nothing goes on.

Exit code: 0 if all tokens are the same and the control's are not; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shlex
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from children import Child, GoneError, SilentError, run_folder

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
# Below those that Linux gives to who asks for any, which begin at 32768.
PORTS = (21000, 32000)
FIRSTS = ("prefill", "decode")

# An engine takes 20 s to start on a free core, and minutes on one that others use. In seconds.
START = 600.0


@dataclass(frozen=True)
class Trial:
    """One request that both engines serve."""

    name: str
    prompt: list[int]
    first: str = "prefill"
    """The engine that hears of it first."""
    given: list[int] | None = None
    """What the prefill engine gets, if not the prompt."""


@dataclass
class Outcome:
    """What came of a trial."""

    trial: Trial
    verdict: str
    expected: str
    seconds: float
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether it is as it must be."""
        return self.verdict == self.expected


def prompt(seed: int, length: int) -> list[int]:
    """Make a prompt of a length, in tokens. None ends a text, and nothing is repeated that a block could hold."""
    tokens, drawn = [], seed
    for _ in range(length):
        drawn = (drawn * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((drawn >> 33) % 256)
    return tokens


def changed(tokens: list[int]) -> list[int]:
    """Make a prompt that differs in one token, in the middle."""
    middle = len(tokens) // 2
    return [*tokens[:middle], (tokens[middle] + 1) % 256, *tokens[middle + 1 :]]


def batches(way: str, lengths: list[int]) -> list[list[Trial]]:
    """Say what is tried, and what of it at once: each length alone, all together, and the control.

    way begins the names: no engine ever sees a name twice.
    """
    all_: list[list[Trial]] = []
    prompts = {seed: prompt(seed, length) for seed, length in enumerate(lengths, 1)}
    for first in FIRSTS:
        all_ += [[Trial(f"{way}-{first[0]}-{seed}", tokens, first)] for seed, tokens in prompts.items()]
    for first in FIRSTS:
        all_.append([Trial(f"{way}-{first[0]}-{seed}-at-once", tokens, first) for seed, tokens in prompts.items()])
    for first in FIRSTS:
        for seed, tokens in prompts.items():
            all_.append([Trial(f"{way}-{first[0]}-{seed}-control", tokens, first, changed(tokens))])
    return all_


def judge(trial: Trial, reference: list[int], done: dict[str, Any] | None, seconds: float) -> Outcome:
    """Compare what the decode engine said, if it did, with the reference."""
    expected = "SAME" if trial.given is None else "DIFF"
    if done is None:
        return Outcome(trial, "NO ANSWER", expected, seconds)
    if done["finish_reason"] != "length":
        return Outcome(trial, "FAILED", expected, seconds, [f"finished for {done['finish_reason']}"])
    equal = sum(1 for a, b in zip(done["tokens"], reference, strict=False) if a == b)
    verdict = "SAME" if done["tokens"] == reference else "DIFF"
    notes = [f"{equal}/{len(reference)} tokens", f"decode {done['seconds']:.2f} s", f"cached {done['cached_tokens']}"]
    return Outcome(trial, verdict, expected, seconds, notes)


def table(outcomes: list[Outcome]) -> str:
    """Write outcomes down."""
    rows = [("request", "prompt", "first", "tokens", "must be", "seconds", "")]
    rows += [
        (
            o.trial.name,
            str(len(o.trial.prompt)),
            o.trial.first,
            o.verdict,
            o.expected,
            f"{o.seconds:.2f}",
            ", ".join(o.notes) + ("" if o.good else "  <--"),
        )
        for o in outcomes
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


References = dict[tuple[int, ...], list[int]]
"""The tokens that follow each prompt."""


class Route(Protocol):
    """How KV gets from the prefill to the decode engine."""

    def relay(self, trial: Trial, params: dict[str, Any]) -> dict[str, Any]:
        """Give what the decode engine is told, for what is known of the prefill engine."""

    def done(self, trial: Trial, answered: bool) -> str:
        """End a request; give what is worth a note."""


class Direct:
    """The prefill engine pushes to the decode engine."""

    def relay(self, trial: Trial, params: dict[str, Any]) -> dict[str, Any]:
        """Name the prefill engine."""
        del trial
        return params

    def done(self, trial: Trial, answered: bool) -> str:
        """Do nothing."""
        del trial, answered
        return ""


class Between:
    """A program stands between."""

    def __init__(self, child: Child, prefill: dict[str, Any], decode: dict[str, Any], patience: float) -> None:
        """Tell it of both engines, and wait until it is ready."""
        self._child = child
        self._patience = patience
        child.say("start", prefill=prefill, decode=decode)
        child.wait("started", patience)

    def relay(self, trial: Trial, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the program."""
        self._child.say("relay", id=trial.name, tokens=len(trial.prompt), first=trial.first, prefill=params)
        answer = self._child.wait("relay", self._patience, id=trial.name)
        told: dict[str, Any] = answer["kv_transfer_params"]
        return {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": None, **told}

    def done(self, trial: Trial, answered: bool) -> str:
        """Let the program go on to the next."""
        self._child.say("done", id=trial.name, answered=answered)
        return str(self._child.wait("done", self._patience, id=trial.name).get("note", ""))


@dataclass
class Pair:
    """Two engines, and the way between them."""

    prefill: Child
    decode: Child
    facts: dict[str, Any]
    route: Route
    new_tokens: int
    patience: float

    def run(self, batch: list[Trial], references: References) -> list[Outcome]:
        """Try requests that have the same engine first, at once. Who ends while they are tried ends everything."""
        begun = time.monotonic()
        silent: dict[str, str] = {}

        def waited(child: Child, op: str, trial: Trial) -> dict[str, Any] | None:
            if trial.name in silent:
                return None
            try:
                return child.wait(op, self.patience, id=trial.name)
            except SilentError as error:
                silent[trial.name] = str(error)
                self.decode.say("abort", id=trial.name)
                return None

        for trial in batch:
            if trial.first == "prefill":
                self._to_prefill(trial)
            else:
                self._to_decode(trial, self.route.relay(trial, self._known(trial)))
        for trial in batch:
            if trial.first == "prefill":
                if (done := waited(self.prefill, "done", trial)) is not None:
                    self._to_decode(trial, self.route.relay(trial, done["kv_transfer_params"]))
            elif waited(self.decode, "begun", trial) is not None:
                self._to_prefill(trial)
        outcomes = []
        for trial in batch:
            if trial.first == "decode":
                waited(self.prefill, "done", trial)
            answer = waited(self.decode, "done", trial)
            outcome = judge(trial, references[tuple(trial.prompt)], answer, time.monotonic() - begun)
            notes = (silent.get(trial.name, ""), self.route.done(trial, answer is not None))
            outcome.notes += [n for n in notes if n]
            outcomes.append(outcome)
        return outcomes

    def _known(self, trial: Trial) -> dict[str, Any]:
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": None,
            "remote_engine_id": self.facts["engine_id"],
            "remote_request_id": trial.name,
            "remote_host": self.facts["host"],
            "remote_port": self.facts["port"],
            "tp_size": self.facts["tp_size"],
        }

    def _to_prefill(self, trial: Trial) -> None:
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        given = trial.prompt if trial.given is None else trial.given
        self.prefill.say("add", id=trial.name, prompt=given, new_tokens=1, kv_transfer_params=params)

    def _to_decode(self, trial: Trial, params: dict[str, Any]) -> None:
        self.decode.say(
            "add", id=trial.name, prompt=trial.prompt, new_tokens=self.new_tokens, kv_transfer_params=params
        )


class Bench:
    """What all engines of a run have in common."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Prepare engines as asked for."""
        self._asked = asked
        self._work = Path(asked.work)

    def engine(self, role: str, *more: str) -> Child:
        """Start an engine. It is ready when it says so."""
        command = [asked_python(self._asked), str(HERE / "engine.py"), "--role", role, *more]
        command += ["--model", str(self._work / "model")]
        for name in ("block_size", "num_blocks"):
            if value := getattr(self._asked, name):
                command += [f"--{name.replace('_', '-')}", str(value)]
        return Child(f"the {role} engine", command, self._work / f"{role}.log")

    def references(self, lengths: list[int]) -> References:
        """Ask a single engine for the tokens of every prompt."""
        found: References = {}
        with self.engine("single") as single:
            report(single.wait("ready", START))
            for seed, length in enumerate(lengths, 1):
                tokens, name = prompt(seed, length), f"single-{seed}"
                single.say("add", id=name, prompt=tokens, new_tokens=self._asked.new_tokens)
                found[tuple(tokens)] = single.wait("done", self._asked.patience, id=name)["tokens"]
        return found

    def pair(self, lengths: list[int], references: References) -> list[Outcome]:
        """Try all with two engines, directly or with what stands between them, or both."""
        outcomes: list[Outcome] = []
        with contextlib.ExitStack() as stack:
            ports = free_ports(2)
            prefill, decode = (
                stack.enter_context(self.engine(role, "--id", f"vllm-{role}", "--port", str(port)))
                for role, port in zip(FIRSTS, ports, strict=True)
            )
            facts = [{k: v for k, v in c.wait("ready", START).items() if k != "op"} for c in (prefill, decode)]
            for each in facts:
                report(each)

            def tried(way: str, route: Route) -> None:
                pair = Pair(prefill, decode, facts[0], route, self._asked.new_tokens, self._asked.patience)
                for batch in batches(way, lengths):
                    for outcome in pair.run(batch, references):
                        report({"request": outcome.trial.name, "tokens": outcome.verdict})
                        outcomes.append(outcome)

            if self._asked.directly or not self._asked.between:
                tried("direct", Direct())
            if self._asked.between:
                command = shlex.split(self._asked.between)
                child = stack.enter_context(Child("what stands between", command, self._work / "between.log"))
                tried("between", Between(child, facts[0], facts[1], self._asked.patience))
        return outcomes


def asked_python(asked: argparse.Namespace) -> str:
    """Say which Python has vLLM."""
    return str(asked.python or sys.executable)


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on, and that no system gives to who asks for any.

    Engines bind them when they have loaded all else. One that cannot waits for ever: vLLM's listener does not say so.
    """
    found: list[int] = []
    for port in random.sample(range(*PORTS), 100):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            found.append(port)
        if len(found) == count:
            return found
    raise GoneError(f"no {count} ports of {PORTS[0]} to {PORTS[1]} are free on {HOST}")


def report(what: dict[str, Any]) -> None:
    """Tell who watches how far it is."""
    print(json.dumps(what), file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", required=True, type=run_folder, metavar="DIRECTORY", help="has the folder model; logs go to a new one"
    )
    parser.add_argument("--python", metavar="FILE", help="the Python that has vLLM, if it is not this one")
    parser.add_argument("--between", metavar="COMMAND", help="a program that stands between the engines")
    parser.add_argument("--directly", action="store_true", help="try it without that program first")
    parser.add_argument("--lengths", default="100,128,300,1000,257", help="of prompts, in tokens")
    parser.add_argument("--new-tokens", type=int, default=24, help="that the decode engine makes of each prompt")
    parser.add_argument("--patience", type=float, default=120, help="with each answer, in seconds")
    parser.add_argument("--block-size", type=int, help="of the engines, in tokens")
    parser.add_argument("--num-blocks", type=int, help="of each engine's cache")
    return parser.parse_args()


def main() -> int:
    """Do what the command line says."""
    asked = arguments()
    bench, lengths = Bench(asked), [int(n) for n in asked.lengths.split(",")]
    begun = time.monotonic()
    try:
        outcomes = bench.pair(lengths, bench.references(lengths))
    except (GoneError, SilentError) as error:
        print(f"interop: {error}", file=sys.stderr)
        return 2
    good = sum(o.good for o in outcomes)
    print(table(outcomes))
    print(f"{good} of {len(outcomes)} are as they must be, {time.monotonic() - begun:.0f} s in all")
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Requests that are tried by a prefill and a decode engine, and what came of them."""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from children import Child, SilentError, run_folder
from hosts import counted, engine
from interop import HOST, START, Trial, prompt, report

if TYPE_CHECKING:
    from collections.abc import Callable

    import kvferry

# Requests that are under way at a time.
ABREAST = 8


@dataclass
class Result:
    """What came of requests."""

    same: int = 0
    different: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def judge(self, trial: Trial, done: dict[str, Any], reference: list[int]) -> None:
        """Compare."""
        if done["finish_reason"] != "length":
            self.failed.append(trial.name)
        elif done["tokens"] == reference:
            self.same += 1
        else:
            self.different.append(trial.name)


def trials(way: str, count: int, seed: int, tails: int = 0) -> list[Trial]:
    """Draw requests: lengths from a few tokens to several chunks; half of them begin as another does.

    No engine has seen any of another seed: it would have the KV. With other tails they begin alike and end differently.
    """
    drawn = random.Random(seed + tails)  # noqa: S311 # Nothing is to be kept secret.
    stems = [prompt(seed * 100_000 + 50_000 + stem, 700) for stem in range(max(3, count // 8))]
    made = []
    for i in range(count):
        tokens = prompt(seed * 100_000 + tails * 10_000 + i, drawn.choice((5, 100, 128, 129, 256, 300, 512, 700, 1000)))
        if i % 2:
            tokens = drawn.choice(stems)[: drawn.choice((128, 256, 384, 700))] + tokens
        made.append(Trial(f"{way}-{i}", tokens, "decode" if i % 4 == 3 else "prefill"))
    return made


class Pair:
    """Two engines and their agents."""

    def __init__(self, prefill: Child, decode: Child, ports: list[int], asked: argparse.Namespace) -> None:
        """Send requests to both."""
        self._prefill, self._decode = prefill, decode
        self._ports, self._asked = ports, asked
        self._own = getattr(asked, "own", False)  # Not of every command.
        self._computed = 0  # requests that the prefill engine was given

    def run(
        self, tried: list[Trial], references: dict[str, list[int]], between: Callable[[int], None] | None = None
    ) -> Result:
        """Try requests, some at a time. While they are under way something is done, which is told how often it was."""
        result = Result()
        for begin in range(0, len(tried), ABREAST):
            batch = tried[begin : begin + ABREAST]
            for trial in batch:
                if trial.first == "decode":
                    self.to_decode(trial)
                self.to_prefill(trial)
            if between is not None:
                between(begin // ABREAST)
            for trial in batch:
                done = self._prefill.wait("done", self._asked.patience, id=trial.name)
                if trial.first == "prefill":
                    self.to_decode(trial, done["kv_transfer_params"])
            for trial in batch:
                done = self._decode.wait("done", self._asked.patience, id=trial.name)
                result.judge(trial, done, references[trial.name])
        return result

    def control(self, trial: Trial, reference: list[int], decode: kvferry.Client) -> bool:
        """Write over what came before the decode engine reads it; say whether its tokens differ.

        The client is of the agent that has it: the decode's, or where blocks are lent the prefill's.
        """
        before = 0.0 if self._own else self._saved()
        self.to_prefill(trial)
        done = self._prefill.wait("done", self._asked.patience, id=trial.name)
        if not self._own and self._saved() == before:  # Else nothing comes before the decode engine asks.
            raise SilentError("the control's KV did not come")
        pool = decode.pool_array()
        pool.view("<f4")[:] *= -1.0
        self.to_decode(trial, done["kv_transfer_params"])
        done = self._decode.wait("done", self._asked.patience, id=trial.name)
        return bool(done["tokens"] != reference)

    def _saved(self) -> float:
        """Wait until the prefill engine has sent all that it computed: it does so after its answers. Say what came.

        What is at the decode's agent says less: something of requests that were aborted may still come, and go.
        """
        until = time.monotonic() + self._asked.patience
        while True:
            self._prefill.say("add", id="look", prompt=[1], new_tokens=1)  # vLLM takes what was counted as it steps.
            self._prefill.wait("done", self._asked.patience, id="look")
            counts = counted(self._prefill, self._asked.patience)
            saved = counts.get("saved_requests", 0)
            if saved + counts.get("failed_saves", 0) >= self._computed:
                return saved
            if time.monotonic() > until:
                raise SilentError(f"of {self._computed} requests the prefill engine says: {counts}")
            time.sleep(0.05)

    def aborted(self, tried: list[Trial]) -> None:
        """Have requests end at the decode engine while it waits; the prefill engine computes them all the same."""
        for trial in tried:
            params = self._answer(trial) if self._own else None
            self.to_decode(trial, params)
            self._decode.wait("begun", self._asked.patience, id=trial.name)
            self._decode.say("abort", id=trial.name)
            if params is None:
                self.to_prefill(trial)
        for trial in tried if not self._own else ():
            self._prefill.wait("done", self._asked.patience, id=trial.name)

    def prefill_gone(self, tried: list[Trial], references: dict[str, list[int]]) -> Result:
        """Kill the prefill engine while the decode engine waits for it."""
        result = Result()
        if self._own:
            answers = [self._answer(trial) for trial in tried]
            for trial, params in zip(tried[: len(tried) // 2], answers, strict=False):
                self.to_decode(trial, params)
            self._prefill.kill()
            for trial, params in zip(tried, answers, strict=True):
                if trial not in tried[: len(tried) // 2]:
                    self.to_decode(trial, params)
        else:
            for trial in tried:
                self.to_decode(trial)
                self.to_prefill(trial)
            self._prefill.kill()
        for trial in tried:
            done = self._decode.wait("done", self._asked.patience, id=trial.name)
            result.judge(trial, done, references[trial.name])
        return result

    def decode_gone(self, tried: list[Trial]) -> None:
        """Kill the decode engine while it waits."""
        for trial in tried:
            self.to_decode(trial)
            self._decode.wait("begun", self._asked.patience, id=trial.name)
        self._decode.kill()

    def to_prefill(self, trial: Trial) -> None:
        """Have the prefill engine compute a request."""
        self._computed += 1
        self._prefill.say(
            "add", id=trial.name, prompt=trial.prompt, new_tokens=1, kv_transfer_params=self._params(trial)
        )

    def _answer(self, trial: Trial) -> dict[str, Any]:
        """Have the prefill engine compute a request, and give what it says of that."""
        self.to_prefill(trial)
        params: dict[str, Any] = self._prefill.wait("done", self._asked.patience, id=trial.name)["kv_transfer_params"]
        return params

    def _params(self, trial: Trial) -> dict[str, Any]:
        init, alloc = self._ports[:2]
        spec = {
            "req_id": trial.name,
            "receiver_host": HOST,
            "receiver_init_port": [init],
            "receiver_alloc_port": [alloc],
        }
        return {"disagg_spec": spec}

    def to_decode(self, trial: Trial, params: dict[str, Any] | None = None) -> None:
        """Have the decode engine go on with a request; without what the prefill said it is the first."""
        wanted = {**self._params(trial), "do_remote_prefill": True} if params is None else params
        self._decode.say(
            "add", id=trial.name, prompt=trial.prompt, new_tokens=self._asked.new_tokens, kv_transfer_params=wanted
        )


def references(asked: argparse.Namespace, tried: list[Trial]) -> dict[str, list[int]]:
    """Ask a single engine for all tokens, one request at a time."""
    found = {}
    with engine(asked, "single", "single") as single:
        report(single.wait("ready", START))
        for trial in tried:
            single.say("add", id=trial.name, prompt=trial.prompt, new_tokens=asked.new_tokens)
            found[trial.name] = single.wait("done", asked.patience, id=trial.name)["tokens"]
    return found


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Say what command lines have in common."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", required=True, type=run_folder, metavar="DIRECTORY", help="has the folder model; logs go to a new one"
    )
    parser.add_argument("--kvferry", required=True, metavar="FILE", help="the command")
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--new-tokens", type=int, default=16, help="that an engine makes of each prompt")
    parser.add_argument("--patience", type=float, default=180, help="with each answer, in seconds")
    parser.add_argument("--num-blocks", type=int, help="of each engine's cache: with few, requests are preempted")
    parser.add_argument("--batched-tokens", type=int, help="of a step: with few, prompts take several")
    parser.add_argument("--load-patience", type=float, default=5, help="of the connector, in seconds")
    return parser

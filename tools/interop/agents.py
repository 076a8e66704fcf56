"""Two vLLM engines with KvferryConnector and two agents, against the tokens of a single engine.

usage: agents.py --work DIRECTORY --kvferry FILE [--requests N] [--layerwise | --pull [--delayed]] ...

The prefill engine computes each prompt and has its agent push the KV to the decode engine's agent, of which the decode
engine takes it. Some requests come to the decode engine first, prompts begin alike, and greedy tokens must be those of
an engine that computes all by itself. Then it is done again

    killed    with agents of either side killed with requests under way, and started anew: what was lost is computed
    aborted   with requests that end while the decode engine waits for their KV
    control   with the decode's pool written over before the engine reads it: its tokens must differ
    prefill   with the prefill engine killed: the decode engine computes what it waits for
    decode    with the decode engine killed while it waits: its agent keeps nothing for it

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvferry

from children import Child, GoneError, SilentError
from interop import HOST, START, free_ports, prompt, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent

# Tokens of a chunk, and what the tiny model has of each (model.py).
FILE = """
enable_pd: true
pd_role: {role}
transfer_channel: auto
pd_skip_proxy_notification: true
{peer}
pd_buffer_size: 256MiB
pd_buffer_device: cpu
chunk_size: 256
{mode}
extra_config:
  kvferry:
    retention: {retention}
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: float}}
"""
# What a file has more of where layers go one by one, and where the decode's agent reads instead.
LAYERWISE = "use_layerwise: true"
PULL = "pd_pull_mode: true"
DELAYED = "pd_delay_pull: true"
DONE = "pd_peer_host: {host}\npd_pull_done_port: [{done}]"
PEER = "pd_peer_host: {host}\npd_peer_init_port: [{init}]\npd_peer_alloc_port: [{alloc}]"

# What they are on either side.
SIDES = {"prefill": "sender", "decode": "receiver"}

# How long a decode's agent keeps what nobody comes for, in seconds.
RETENTION = 20

# Requests that are under way at a time.
ABREAST = 8


@dataclass(frozen=True)
class Trial:
    """One request."""

    name: str
    prompt: list[int]
    decode_first: bool


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


class Agent:
    """An agent that can be killed and started anew at the same place."""

    def __init__(self, binary: str, name: str, text: str, work: Path) -> None:
        """Start it with a configuration."""
        self.socket = work / f"{name}.sock"
        self._config = work / f"{name}.yaml"
        self._log = work / f"{name}-agent.log"
        self._log.unlink(missing_ok=True)
        self._config.write_text(text, encoding="utf-8")
        self._command = [binary, "agent", "--config", str(self._config), "--socket", str(self.socket)]
        self.start()

    def start(self) -> None:
        """Run it; return when it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 # Who calls says what runs.
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None  # noqa: S101 # It was asked for.
        if not self._process.stdout.readline():
            raise GoneError(f"the agent does not serve; its log is {self._log}")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def held(self, client: kvferry.Client) -> dict[str, int]:
        """Say what is left in it, beside pages that nobody has."""
        node = client.stats()["node"]
        return {name: node[name] for name in ("Claims", "Pinned", "PagesLent") if node[name]}


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
        made.append(Trial(f"{way}-{i}", tokens, i % 4 == 3))
    return made


class Pair:
    """Two engines and their agents."""

    def __init__(self, prefill: Child, decode: Child, ports: list[int], asked: argparse.Namespace) -> None:
        """Send requests to both."""
        self._prefill, self._decode = prefill, decode
        self._ports, self._asked = ports, asked

    def run(
        self, tried: list[Trial], references: dict[str, list[int]], between: Callable[[int], None] | None = None
    ) -> Result:
        """Try requests, some at a time. While they are under way something is done, which is told how often it was."""
        result = Result()
        for begin in range(0, len(tried), ABREAST):
            batch = tried[begin : begin + ABREAST]
            for trial in batch:
                if trial.decode_first:
                    self.to_decode(trial)
                self.to_prefill(trial)
            if between is not None:
                between(begin // ABREAST)
            for trial in batch:
                done = self._prefill.wait("done", self._asked.patience, id=trial.name)
                if not trial.decode_first:
                    self.to_decode(trial, done["kv_transfer_params"])
            for trial in batch:
                done = self._decode.wait("done", self._asked.patience, id=trial.name)
                result.judge(trial, done, references[trial.name])
        return result

    def control(self, trial: Trial, reference: list[int], decode: kvferry.Client) -> bool:
        """Write over what came before the decode engine reads it; say whether its tokens differ."""
        before = decode.stats()["node"]["Claims"]
        self.to_prefill(trial)
        done = self._prefill.wait("done", self._asked.patience, id=trial.name)
        until = time.monotonic() + self._asked.patience
        chunks = -(-len(trial.prompt) // 256)
        while decode.stats()["node"]["Claims"] < before + chunks:  # It is pushed after the engine has answered.
            if time.monotonic() > until:
                raise SilentError("the control's KV did not come")
            time.sleep(0.01)
        pool = decode.pool()
        pool.view("<f4")[:] *= -1.0
        self.to_decode(trial, done["kv_transfer_params"])
        done = self._decode.wait("done", self._asked.patience, id=trial.name)
        return bool(done["tokens"] != reference)

    def aborted(self, tried: list[Trial]) -> None:
        """Have requests end at the decode engine while it waits; the prefill engine computes them all the same."""
        for trial in tried:
            self.to_decode(trial)
            self._decode.wait("begun", self._asked.patience, id=trial.name)
            self._decode.say("abort", id=trial.name)
            self.to_prefill(trial)
        for trial in tried:
            self._prefill.wait("done", self._asked.patience, id=trial.name)

    def prefill_gone(self, tried: list[Trial], references: dict[str, list[int]]) -> Result:
        """Kill the prefill engine while the decode engine waits for it."""
        result = Result()
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
        self._prefill.say(
            "add", id=trial.name, prompt=trial.prompt, new_tokens=1, kv_transfer_params=self._params(trial)
        )

    def _params(self, trial: Trial) -> dict[str, Any]:
        init, alloc, _ = self._ports
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


def engine(asked: argparse.Namespace, role: str, name: str, *more: str) -> Child:
    """Start an engine."""
    work = Path(asked.work)
    command = [sys.executable, str(HERE / "engine.py"), "--role", role, "--model", str(work / "model"), *more]
    return Child(f"the {name} engine", command, work / f"{name}.log")


def connected(asked: argparse.Namespace, role: str, name: str, agent: Agent, **more: object) -> Child:
    """Start an engine that has an agent."""
    extra = {"socket": str(agent.socket), "load_patience": asked.load_patience, "grace": 1, **more}
    return engine(
        asked,
        role,
        name,
        "--connector=KvferryConnector",
        "--connector-module=kvferry.vllm",
        "--failure-policy=recompute",
        "--prefix-caching",
        *((f"--num-blocks={asked.num_blocks}",) if asked.num_blocks else ()),
        *((f"--batched-tokens={asked.batched_tokens}",) if asked.batched_tokens else ()),
        f"--extra={json.dumps(extra)}",
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


def clear(agent: Agent, patience: float) -> dict[str, int]:
    """Wait until an agent has nothing left; say what it has when the patience is over."""
    until = time.monotonic() + patience
    with kvferry.connect(agent.socket) as client:
        while (left := agent.held(client)) and time.monotonic() < until:
            time.sleep(0.05)
    return left


def nothing_held(way: str, both: dict[str, Agent]) -> bool:
    """Say whether agents keep nothing; tell who watches."""
    left = {side: clear(agent, RETENTION * 2) for side, agent in both.items()}
    print(f"{way}: held at the end: {left}")
    return not any(left.values())


@contextlib.contextmanager
def agents(asked: argparse.Namespace, ports: list[int]) -> Iterator[dict[str, Agent]]:
    """Run both agents."""
    made: dict[str, Agent] = {}
    try:
        for side, role in SIDES.items():
            peer = ""
            if side == "decode":
                peer = PEER.format(host=HOST, init=ports[0], alloc=ports[1])
            elif asked.pull:
                peer = DONE.format(host=HOST, done=ports[2])
            delayed = f"\n{DELAYED}" if asked.delayed and side == "decode" else ""
            mode = PULL + delayed if asked.pull else LAYERWISE if asked.layerwise else ""
            text = FILE.format(role=role, peer=peer, mode=mode, retention=RETENTION)
            made[side] = Agent(asked.kvferry, side, text, Path(asked.work))
        yield made
    finally:
        for agent in made.values():
            agent.kill()


def counted(child: Child, patience: float) -> dict[str, float]:
    """Ask an engine what its connector counted so far."""
    child.say("metrics")
    counts: dict[str, float] = child.wait("metrics", patience)["counts"]
    return {word: value for word, value in counts.items() if value}


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    plain, killed = trials("plain", asked.requests, 1), trials("killed", asked.requests, 2)
    aborted, orphans, waiting = (
        trials(way, ABREAST, seed) for way, seed in (("aborted", 3), ("prefill", 4), ("decode", 5))
    )
    control = Trial("control", prompt(7, 900), decode_first=False)
    known = references(asked, [*plain, *killed, *orphans, control])
    ports, good = free_ports(3), True
    with agents(asked, ports) as both, contextlib.ExitStack() as stack:
        engines = {
            side: stack.enter_context(connected(asked, side, side, agent, delayed=asked.delayed))
            for side, agent in both.items()
        }
        for child in engines.values():
            report(child.wait("ready", START))
        pair = Pair(engines["prefill"], engines["decode"], ports, asked)

        def restart(times: int) -> None:
            """Kill the decode's agent, go on for a while, kill the prefill's, go on, and so forth."""
            if times % 2 == 0:
                agent = both["prefill" if times % 8 == 4 else "decode"]
                agent.kill()
                agent.start()

        for way, some, between in (("plain", plain, None), ("killed", killed, restart)):
            begun = time.monotonic()
            result = pair.run(some, known, between)
            took = time.monotonic() - begun
            left = {side: clear(agent, 20) for side, agent in both.items()}
            said = {side: counted(child, asked.patience) for side, child in engines.items()}
            good = good and result.same == len(some) and not any(left.values())
            if way == "plain":  # Else all may have been computed, and nothing was tried.
                good = good and said["decode"].get("loaded_requests", 0) >= 0.9 * len(some)
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  {took:.0f} s; held at the end: {left}")
            for side, counts in said.items():
                print(f"  {side} so far: {json.dumps(counts)}")
        pair.aborted(aborted)
        good = nothing_held("aborted", both) and good
        if not asked.delayed:  # Else nothing is at the decode before it is fetched, that could be written over.
            with kvferry.connect(both["decode"].socket) as client:
                differs = pair.control(control, known[control.name], client)
            print(f"control: tokens {'differ, as they must' if differs else 'are the same, and must not be'}")
            good = good and differs
        result = pair.prefill_gone(orphans, known)
        print(f"prefill: {result.same} of {len(orphans)} same, different {result.different}, failed {result.failed}")
        good = nothing_held("prefill", both) and good and result.same == len(orphans)
        pair.decode_gone(waiting)
        return nothing_held("decode", both) and good


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Say what command lines have in common."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, metavar="DIRECTORY", help="has the folder model; logs go there")
    parser.add_argument("--kvferry", required=True, metavar="FILE", help="the command")
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--new-tokens", type=int, default=16, help="that an engine makes of each prompt")
    parser.add_argument("--patience", type=float, default=180, help="with each answer, in seconds")
    parser.add_argument("--num-blocks", type=int, help="of each engine's cache: with few, requests are preempted")
    parser.add_argument("--batched-tokens", type=int, help="of a step: with few, prompts take several")
    parser.add_argument("--load-patience", type=float, default=5, help="of the connector, in seconds")
    return parser


def main() -> int:
    """Do what the command line says."""
    parser = arguments(__doc__)
    parser.add_argument("--pull", action="store_true", help="the decode's agent reads, instead of being written to")
    parser.add_argument("--delayed", action="store_true", help="with --pull: when the engine fetches")
    parser.add_argument("--layerwise", action="store_true", help="each layer goes while the next is computed")
    asked = parser.parse_args()
    if asked.layerwise and asked.pull:
        parser.error("layers are pushed: --layerwise and --pull exclude each other")
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"agents: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""Two processes with LMCache's storage manager and KvferryBackend, over two agents: every byte is verified.

usage: storage.py --work DIRECTORY --kvferry FILE [--requests N] [--pull [--delayed]] ...

There are no engines here, and no tokens: plugin.py has those. Who plays one fills memory objects of LMCache's own
allocator, and puts them as its cache engine does, with the DisaggSpec of its vLLM adapter; LMCache's own launcher has
loaded the plug-in. At the decode they are looked up and got in order of its cache engine. Then it is done again while
agents of either side are killed and started anew. Then two ends share through one agent.

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvferry

from children import Child, GoneError, SilentError
from engine import SETTINGS, settle_llvmlite
from hosts import Agent, add_pulls, clear, files
from interop import HOST, START, free_ports, report
from trials import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from lmcache.utils import CacheEngineKey

# Tokens of a chunk, layers, heads and their size: what the agents' file says.
CHUNK, LAYERS, HEADS, HEAD = 256, 4, 2, 64

LMCACHE = """
chunk_size: {chunk}
local_cpu: false
max_local_cpu_size: 0.25
enable_pd: false
save_unfull_chunk: true
pre_caching_hash_algorithm: sha256_cbor
storage_plugins: [kvferry]
extra_config:
  storage_plugin.kvferry.module_path: kvferry.lmcache
  storage_plugin.kvferry.class_name: KvferryBackend
  kvferry: {{socket: "{socket}", grace: 1, load_patience: 5, weights: tiny}}
"""

# A node that shares, and has no directory: engines of one host.
SHARING = """
enable_p2p: true
p2p_host: {host}
p2p_init_ports: [{ports[0]}]
p2p_lookup_ports: [{ports[1]}]
pd_buffer_size: 256MiB
pd_buffer_device: cpu
chunk_size: 256
extra_config:
  kvferry:
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: float}}
"""


class End:
    """LMCache in one process."""

    def __init__(self, config: str) -> None:
        """Have LMCache load the plug-in."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        settle_llvmlite()
        import torch as torch_module  # noqa: PLC0415 # The environment comes first.
        from lmcache import utils  # noqa: PLC0415
        from lmcache.integration.vllm.vllm_v1_adapter import DisaggSpec  # noqa: PLC0415
        from lmcache.v1.config import LMCacheEngineConfig  # noqa: PLC0415
        from lmcache.v1.event_manager import EventManager  # noqa: PLC0415
        from lmcache.v1.metadata import LMCacheMetadata  # noqa: PLC0415
        from lmcache.v1.storage_backend.storage_manager import StorageManager  # noqa: PLC0415

        self._torch, self._spec, self._key = torch_module, DisaggSpec, utils.CacheEngineKey
        self._metadata = LMCacheMetadata(
            model_name="tiny",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch_module.float32,
            kv_shape=(LAYERS, 2, CHUNK, HEADS, HEAD),
            role="worker",
            chunk_size=CHUNK,
        )
        self._manager = StorageManager(LMCacheEngineConfig.from_file(config), self._metadata, EventManager())
        if "kvferry" not in self._manager.storage_backends:
            raise RuntimeError("LMCache has not loaded the plug-in; see the log")

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do one thing."""
        keys = [self._key("tiny", 1, 0, number, self._torch.float32) for number in asked.get("keys", ())]
        match asked["op"]:
            case "put":
                return {"kept": self._put(keys, asked["tokens"], asked["spec"], asked["last"])}
            case "gone":
                return {"well": self._gone(keys, asked["patience"])}
            case "find":
                return {"found": self._manager.batched_contains(keys, pin=True)[0]}
            case "get":
                return self._get(keys, asked["found"])
            case "close":
                allocator = self._manager.allocator_backend.get_memory_allocator()
                self._manager.close()
                return {"well": bool(allocator.memcheck())}
        raise ValueError(f"{asked!r} is no command")

    def _put(self, keys: list[Any], tokens: int, spec: dict[str, Any] | None, last: bool) -> int:
        """Put a prompt as LMCache's cache engine does: objects that are allocated, filled, and handed over."""
        objects = []
        for place, key in enumerate(keys):
            shapes = self._metadata.get_shapes(min(CHUNK, tokens - place * CHUNK))
            found = self._manager.allocate(shapes, self._metadata.get_dtypes(), busy_loop=False)
            if found is None:
                break
            found.tensor.copy_(self._content(key, shapes[0]))
            objects.append(found)
        if objects:
            whom = None if spec is None else self._spec(**spec, is_last_prefill=last, total_chunks=len(keys))
            self._manager.batched_put(keys[: len(objects)], objects, transfer_spec=whom)
        return len(objects)

    def _gone(self, keys: list[Any], patience: float) -> bool:
        """Wait until nothing of a prompt is on its way; say whether it is so."""
        until, plugin = time.monotonic() + patience, self._manager.storage_backends["kvferry"]
        while any(plugin.exists_in_put_tasks(key) for key in keys):
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True

    def _get(self, keys: list[Any], found: int) -> dict[str, Any]:
        """Get what was found, compare it, and end the pins of the look-up."""
        same = different = 0
        for key, got in zip(keys, self._manager.batched_get(keys[:found], "kvferry") if found else (), strict=False):
            if got is None:
                break
            right = self._torch.equal(got.tensor, self._content(key, got.get_shape()))
            same, different = same + right, different + (not right)
            got.ref_count_down()
        self._manager.batched_unpin(keys[:found], ["kvferry"])
        return {"same": same, "different": different}

    def _content(self, key: CacheEngineKey, shape: torch.Size) -> torch.Tensor:
        """Make up a chunk, out of its key."""
        drawn = self._torch.Generator().manual_seed(key.chunk_hash)
        return self._torch.randn(shape, generator=drawn)


def end(config: str) -> None:
    """Be one end: answer commands, one a line."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    made = End(config)
    print(json.dumps({"op": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "stop":
            break
        print(json.dumps({"op": asked["op"], **made.answer(asked)}), file=answers, flush=True)
    os._exit(0)  # LMCache has threads that do not end.


class Ends:
    """Both ends, and what came of what they did."""

    def __init__(self, put: Child, got: Child, patience: float) -> None:
        """Have one put, and the other get."""
        self._putting, self._getting, self._patience = put, got, patience
        self.same = self.different = self.missing = 0

    def ask(self, child: Child, op: str, **what: object) -> dict[str, Any]:
        """Have an end do something."""
        child.say(op, **what)
        return child.wait(op, self._patience)

    def prompt(self, keys: list[int], tokens: int, spec: dict[str, Any] | None, between: Callable[[], None]) -> None:
        """Have a prompt go from one to the other, in two parts as when it is computed in two steps."""
        cut = len(keys) // 2
        if cut:
            self.ask(self._putting, "put", keys=keys[:cut], tokens=cut * CHUNK, spec=spec, last=False)
        self.ask(self._putting, "put", keys=keys[cut:], tokens=tokens - cut * CHUNK, spec=spec, last=True)
        between()
        if not self.ask(self._putting, "gone", keys=keys, patience=self._patience)["well"]:
            raise SilentError("a put does not end")
        wanted = len(keys) if spec is not None else tokens // CHUNK
        found = self.ask(self._getting, "find", keys=keys)["found"]
        got = self.ask(self._getting, "get", keys=keys, found=found)
        self.same, self.different = self.same + got["same"], self.different + got["different"]
        self.missing += wanted - got["same"] - got["different"]


def started(asked: argparse.Namespace, name: str, agent: Agent) -> Child:
    """Start an end."""
    work = Path(asked.work)
    config = work / f"{name}-lmcache.yaml"
    config.write_text(LMCACHE.format(chunk=CHUNK, socket=agent.socket), encoding="utf-8")
    command = [sys.executable, __file__, "--work", str(work), "--kvferry", "", "--end", str(config)]
    return Child(f"the {name} end", command, work / f"{name}-end.log")


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    init, alloc, done, first, second = free_ports(5)
    drawn, good, work = random.Random(21), True, Path(asked.work)  # noqa: S311 # Nothing is to be kept secret.
    spec = {
        "receiver_id": f"{HOST}{init}",
        "receiver_host": HOST,
        "receiver_init_port": [init],
        "receiver_alloc_port": [alloc],
    }
    texts = files([init, alloc, done], pull=asked.pull, delayed=asked.delayed, retention=5)
    texts["both"] = SHARING.format(host=HOST, ports=(first, second))
    with contextlib.ExitStack() as stack:
        agents = {name: Agent(asked.kvferry, f"storage-{name}", text, work) for name, text in texts.items()}
        for agent in agents.values():
            stack.callback(agent.kill)
        ends = {
            name: stack.enter_context(started(asked, name, agents[agent]))
            for name, agent in (("prefill", "prefill"), ("decode", "decode"), ("one", "both"), ("other", "both"))
        }
        for child in ends.values():
            report(child.wait("ready", START))
        for way, put, get in (
            ("sent", "prefill", "decode"),
            ("killed", "prefill", "decode"),
            ("shared", "one", "other"),
        ):
            both = Ends(ends[put], ends[get], asked.patience)

            def between(way: str = way, drawn: random.Random = drawn, agents: dict[str, Agent] = agents) -> None:
                if way == "killed" and drawn.random() < 0.5:
                    agent = agents[drawn.choice(("prefill", "decode"))]
                    agent.kill()
                    agent.start()

            for number in range(asked.requests):
                tokens = drawn.choice((5, 255, 256, 257, 700, 1024, 5000))
                keys = [drawn.getrandbits(63) for _ in range(-(-tokens // CHUNK))]
                both.prompt(keys, tokens, None if way == "shared" else {"req_id": f"{way}-{number}", **spec}, between)
            print(f"{way}: chunks same {both.same}, different {both.different}, missing {both.missing}")
            good = good and both.same > 0 and not both.different and (way == "killed" or not both.missing)
        for name, child in ends.items():
            child.say("close")
            well = child.wait("close", asked.patience)["well"]
            print(f"{name}: LMCache's memory is {'whole' if well else 'NOT WHOLE'} at the end")
            good = good and well
        left = {name: clear(agent, 20) for name, agent in agents.items()}
        print(f"held at the end: {left}")
        return good and not any(left.values())


def main() -> int:
    """Do what the command line says."""
    parser = arguments(__doc__)
    add_pulls(parser)
    parser.add_argument("--end", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.end:
        end(asked.end)
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"storage: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""Two vLLM engines with LMCache's multi-process servers, over agents and a directory, against a single engine's tokens.

usage: servers.py --work DIRECTORY --kvferry FILE [--requests N] ...

Each engine has a server of its own, whose L2 is kvferry.lmcache.KvferryL2 over an agent of its own: engine, server and
agent of a host. One engine computes requests, and its server has the agent keep their chunks. The other engine gets
requests that begin alike: its server finds those chunks by the directory, and its agent brings them from the first one.
Then it is done again while agents of either side are killed, in turn, and started anew. Tokens are greedy, and must be
those of an engine that computes all by itself. At last chunks are written over in the first agent's pool before they
are asked for: tokens must differ then, or nothing was tried.

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import kvferry

from children import Child, GoneError, SilentError
from hosts import Agent, clear, engine
from interop import HOST, START, Trial, free_ports, prompt, report
from sharers import FILE, run
from trials import arguments, references, trials

if TYPE_CHECKING:
    import argparse

# Tokens of a chunk, at servers as at agents.
CHUNK = 256

# What a server is told beside where it listens. It has a core at most, and no GPU.
SERVER = (
    "--l1-size-gb=1",
    "--l1-init-size-gb=1",
    "--eviction-policy=LRU",
    f"--chunk-size={CHUNK}",
    "--disable-observability",
    "--supported-transfer-mode=auto",
)


class Server:
    """LMCache's multi-process server, over an agent."""

    def __init__(self, name: str, agent: Agent, work: Path) -> None:
        """Start it; return when it listens."""
        self.port, self._log = free_ports(1)[0], work / f"{name}-server.log"
        adapter = {
            "type": "native_plugin",
            "module_path": "kvferry.lmcache",
            "class_name": "KvferryL2",
            "adapter_params": {"socket": str(agent.socket), "grace": 1, "weights": "tiny"},
        }
        command = [sys.executable, "-m", "lmcache.v1.multiprocess.server", f"--host={HOST}", f"--port={self.port}"]
        command += [*SERVER, f"--l2-adapter={json.dumps(adapter)}"]
        told = {"LMCACHE_TRACK_USAGE": "false", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 # Who calls says what runs.
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | told
            )
        until = time.monotonic() + START
        while not self._listens():
            if self._process.poll() is not None:
                raise GoneError(f"the server ended; its log is {self._log}")
            if time.monotonic() > until:
                self.kill()
                raise SilentError(f"the server does not listen; its log is {self._log}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            return True
        return False

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def connected(asked: argparse.Namespace, name: str, server: Server) -> Child:
    """Start an engine that has a server."""
    extra = {"lmcache.mp.host": f"tcp://{HOST}", "lmcache.mp.port": server.port}
    return engine(
        asked,
        "both",
        name,
        "--connector=LMCacheMPConnector",
        "--failure-policy=recompute",
        f"--extra={json.dumps(extra)}",
    )


def brought(agent: Agent) -> int:
    """Say how many chunks an agent has read from others, since it was started."""
    with kvferry.connect(agent.socket) as client:
        return int(client.stats()["facts"].get("ready.ok", 0))


def control(asked: argparse.Namespace, engines: list[Child], known: dict[str, list[int]], agent: Agent) -> bool:
    """Write over what the first engine has stored before the second one asks for it; say whether its tokens differ.

    What the directory has not heard of is computed, as it must be. So there are several prompts.
    """
    for trial in CONTROLS:
        with kvferry.connect(agent.socket) as client:
            before, until = client.stats()["node"]["entries"], time.monotonic() + asked.patience
            engines[0].say("add", id=trial.name, prompt=trial.prompt, new_tokens=1)
            engines[0].wait("done", asked.patience, id=trial.name)
            while client.stats()["node"]["entries"] < before + len(trial.prompt) // CHUNK:
                if time.monotonic() > until:
                    raise SilentError("the control's KV was not stored")
                time.sleep(0.01)
            client.pool_array().view("<f4")[:] *= -1.0
        engines[1].say("add", id=trial.name, prompt=trial.prompt, new_tokens=len(known[trial.name]))
        if engines[1].wait("done", asked.patience, id=trial.name)["tokens"] != known[trial.name]:
            return True
    return False


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    ways = {way: trials(way, asked.requests, seed, tails) for way, seed, tails in WAYS}
    known = references(asked, [trial for some in (*ways.values(), CONTROLS) for trial in some])
    found, good, work = free_ports(9), True, Path(asked.work)
    given = dict(zip(("pull", "reply", "heartbeat"), found[:3], strict=True))
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((work / "directory.log").open("wb"))
        command = [asked.kvferry, "directory", "--ports", json.dumps(given)]
        directory = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 # Who calls says what runs.
        stack.callback(directory.wait)
        stack.callback(directory.kill)
        agents: list[Agent] = []
        engines: list[Child] = []
        for i, name in enumerate(("one", "two")):
            text = FILE.format(host=HOST, name=name, ports=found[3 * i + 3 : 3 * i + 6], directory=given)
            agents.append(Agent(asked.kvferry, name, text, work))
            stack.callback(agents[i].kill)
            server = Server(name, agents[i], work)
            stack.callback(server.kill)
            engines.append(stack.enter_context(connected(asked, name, server)))
        for child in engines:
            report(child.wait("ready", START))

        def restart(times: int) -> None:
            """Kill the agent of who loads, then that of who stored, and so forth."""
            agents[1 - times % 2].kill()
            agents[1 - times % 2].start()

        for place, (way, some) in enumerate(ways.items()):
            begun = time.monotonic()
            result = run(engines[place % 2], some, known, asked.patience, restart if way == "killed" else None)
            took, came = time.monotonic() - begun, brought(agents[1])
            left = [clear(agent, 20) for agent in agents]
            good = good and result.same == len(some) and not any(left)
            if way == "shared":  # Else all may have been computed, and nothing was tried.
                good = good and came > 0
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  {took:.0f} s; held at the end: {left}; chunks from one agent to the other so far: {came}")
        differs = control(asked, engines, known, agents[0])
        print(f"control: tokens {'differ, as they must' if differs else 'are the same, and must not be'}")
        return good and differs


# What is tried, by the engines in turn: by which prompts they begin, and how they end.
WAYS = (("first", 11, 0), ("shared", 11, 1), ("again", 12, 0), ("killed", 12, 1))
CONTROLS = [Trial(f"control-{i}", prompt(900_000 + i, 900)) for i in range(5)]


def main() -> int:
    """Do what the command line says."""
    asked = arguments(__doc__).parse_args()
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"servers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

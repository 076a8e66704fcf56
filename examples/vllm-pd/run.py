"""Runs a prefill and a decode engine of vLLM on this machine, without a GPU, and compares their tokens with those of a
single engine.

usage: run.py [--work DIRECTORY] [--requests N]      with a Python that has vLLM and kvferry

It starts what README.md starts by hand: an agent for each engine, both engines, and the proxy. Before that, a single
engine answers the same requests.

Exit code: 0 if all tokens are equal and the KV of all prompts came from the prefill engine; 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from kvferry import Error, agent

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
PORTS = {"single": 8300, "prefill": 8100, "decode": 8200, "proxy": 8000}

# How long an engine may take to start, and to answer a request, in seconds; other work may run on the machine.
START, ANSWER = 600, 300

# Settings for two cores.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


class FailedError(Exception):
    """A process has ended or does not serve."""


class Process:
    """A process whose log is a file. At the end of the context it is stopped with all its children."""

    def __init__(self, name: str, command: list[str], work: Path) -> None:
        """Start the process."""
        self._name, self._log = name, work / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (What runs is written here.)
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **os.environ},
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process."""
        for how, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)

    def serves(self, port: int) -> None:
        """Wait until the process answers."""
        until = time.monotonic() + START
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise FailedError(f"{self._name} has ended; see its log {self._log}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5).close()
                return
            time.sleep(0.2)
        raise FailedError(f"{self._name} does not serve after {START} s; its log is {self._log}")


def engine(name: str, model: Path, *more: str) -> list[str]:
    """Return the command of an engine."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "tiny", "--host", HOST, "--port", str(PORTS[name])]
    return [*command, "--dtype", "float32", "--enforce-eager", "--max-model-len", "4096", *more]


def connected(name: str, model: Path, socket: str) -> list[str]:
    """Return the command of an engine with an agent."""
    transfer = {
        "kv_connector": "KvferryConnector",
        "kv_connector_module_path": "kvferry.vllm",
        "kv_role": ROLES[name],
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"socket": socket},
    }
    return engine(name, model, "--kv-transfer-config", json.dumps(transfer))


def ask(name: str, prompt: str) -> tuple[list[int], float]:
    """Request a completion; return its tokens, and the time to the first token in seconds."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "return_token_ids": True}
    request = urllib.request.Request(
        f"http://{HOST}:{PORTS[name]}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    tokens: list[int] = []
    first, begun = 0.0, time.monotonic()
    with urllib.request.urlopen(request, timeout=ANSWER) as answer:  # noqa: S310 (It is ours.)
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                tokens += choice.get("token_ids") or []
                first = first or time.monotonic() - begun
    return tokens, first


def loaded() -> float:
    """Return for how many requests the decode engine has loaded KV."""
    with urllib.request.urlopen(f"http://{HOST}:{PORTS['decode']}/metrics", timeout=ANSWER) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("kvferry:loaded_requests_total"))


def prompts(count: int) -> list[str]:
    """Return random texts without common prefixes, from one chunk to several."""
    drawn = random.Random(1)  # noqa: S311 (Nothing is to be kept secret.)
    lengths = [300, 700, 1500, 3000]
    return ["".join(drawn.choices("abcdefgh ", k=lengths[i % len(lengths)])) for i in range(count)]


def tried(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the comparison and return its results."""
    top, binary = Path(asked.work).resolve(), agent.find_binary()
    top.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=top))  # Existing files are not overwritten.
    model, begun = top / "model", time.monotonic()
    if not (model / "tokenizer.json").exists():
        done = subprocess.run([sys.executable, str(HERE / "tiny.py"), str(model)], check=False)  # noqa: S603
        if done.returncode:
            raise FailedError(f"tiny.py made no model, and ended with status {done.returncode}; its output is above")
    texts = prompts(asked.requests)
    with Process("single", engine("single", model), work) as single:
        single.serves(PORTS["single"])
        alone = [ask("single", text) for text in texts]
    with contextlib.ExitStack() as stack:
        sockets = {name: str(work / f"{name}.sock") for name in ROLES}
        certs = work / "certs"
        issued = subprocess.run(  # noqa: S603 (The command is ours.)
            [binary, "certs", "--out", str(certs), *(f"{name}/agent" for name in ROLES)],
            check=False,
            stdout=subprocess.DEVNULL,
        )
        if issued.returncode:
            raise FailedError(f"kvferry certs ended with status {issued.returncode}; its output is above")
        for name, socket in sockets.items():
            log = stack.enter_context((work / f"{name}-agent.log").open("wb"))
            try:
                security = {"mode": "strict", "dir": str(certs / name / "agent")}
                secured = {"LMCACHE_EXTRA_CONFIG": json.dumps({"kvferry": {"security": security}})}
                stack.enter_context(agent.start(HERE / f"{name}.yaml", socket, stderr=log, variables=secured))
            except Error as error:
                raise FailedError(f"{name}'s agent: {error}; its log is {log.name}") from error
        started = {
            name: stack.enter_context(Process(name, connected(name, model, sockets[name]), work)) for name in ROLES
        }
        command = [
            binary,
            "proxy",
            "--listen",
            f"{HOST}:{PORTS['proxy']}",
            "--prefill",
            f"http://{HOST}:{PORTS['prefill']}",
        ]
        command += ["--decode", f"http://{HOST}:{PORTS['decode']}=localhost:7300:7400"]
        front = stack.enter_context(Process("proxy", command, work))
        for name, process in started.items():
            process.serves(PORTS[name])
        front.serves(PORTS["proxy"])
        ready = time.monotonic() - begun
        both = [ask("proxy", text) for text in texts]
        came = loaded()
    return {
        "requests": len(texts),
        "same tokens": sum(one[0] == two[0] and len(one[0]) == 24 for one, two in zip(alone, both, strict=True)),
        "KV loaded": int(came),
        "first token, seconds": {
            "alone": round(sorted(t for _, t in alone)[len(texts) // 2], 3),
            "prefill and decode": round(sorted(t for _, t in both)[len(texts) // 2], 3),
        },
        "seconds until ready": round(ready),
        "logs": work,
    }


def main() -> int:
    """Parse the arguments and run the comparison."""
    parser = argparse.ArgumentParser(description="Prefill and decode engines of vLLM, against one alone.")
    parser.add_argument(
        "--work", default="vllm-pd.work", help="directory for the model; sockets and logs go into a new one there"
    )
    parser.add_argument("--requests", type=int, default=8, help="how many prompts")
    asked = parser.parse_args()
    try:
        found = tried(asked)
    except (FailedError, Error, urllib.error.URLError, http.client.HTTPException, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    for what, value in found.items():
        print(f"{what}: {value}")
    return 0 if found["same tokens"] == found["KV loaded"] == found["requests"] else 1


if __name__ == "__main__":
    sys.exit(main())

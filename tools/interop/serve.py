"""Runs vLLM's server for commands as engine.py has them: its scheduler and each of its workers are processes.

usage: serve.py --role single|prefill|decode --model DIRECTORY [--ranks N] [--extra JSON] ...

It takes add, metrics and stop, and answers as engine.py does. A request is a POST to /v1/completions.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from engine import KV_ROLES, SETTINGS
from interop import HOST, free_ports

if TYPE_CHECKING:
    from http.client import HTTPResponse

# How long a request may take, in seconds: whoever asked waits no longer.
PATIENCE = 600.0


class Server:
    """A server, and the requests that it has."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Start it."""
        (self._port,) = free_ports(1)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", asked.model]
        given = {
            "served-model-name": "tiny",
            "host": HOST,
            "port": self._port,
            "dtype": "float32",
            "max-model-len": 4096,
            "max-num-seqs": 16,
            "max-num-batched-tokens": asked.batched_tokens,
            "seed": 0,
            "tensor-parallel-size": asked.ranks,
        }
        command += [text for name, value in given.items() for text in (f"--{name}", str(value))]
        command += ["--skip-tokenizer-init", "--enforce-eager"]
        command += ["--enable-prefix-caching" if asked.prefix_caching else "--no-enable-prefix-caching"]
        if asked.role in KV_ROLES:
            config = {
                "kv_connector": asked.connector,
                "kv_connector_module_path": asked.connector_module,
                "kv_role": KV_ROLES[asked.role],
                "kv_load_failure_policy": asked.failure_policy,
                "kv_connector_extra_config": json.loads(asked.extra),
            }
            command += ["--kv-transfer-config", json.dumps(config)]
        settings = {name: value for name, value in SETTINGS.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
        self._process = subprocess.Popen(  # noqa: S603 # Who calls says what runs.
            command,
            env={**settings, "VLLM_CPU_KVCACHE_SPACE": "1", **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=_with_us,  # noqa: PLW1509 # Nothing runs beside it yet.
        )
        self._say_lock = threading.Lock()

    def ready(self) -> None:
        """Wait until it serves."""
        while self._process.poll() is None:
            try:
                self._open("/health").close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise SystemExit("the server has ended")

    def answer(self, op: str, **what: object) -> None:
        """Say something."""
        with self._say_lock:
            print(json.dumps({"op": op, **what}), flush=True)

    def add(self, name: str, prompt: list[int], count: int, params: object) -> None:
        """Have a request served, and answer."""
        begun = time.monotonic()
        body = {"model": "tiny", "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        body.update(return_token_ids=True, **({"kv_transfer_params": params} if params else {}))
        try:
            with self._open("/v1/completions", json.dumps(body).encode(), name) as answer:
                said = json.load(answer)
        except (OSError, ValueError) as error:
            text = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else str(error)
            self.answer("error", id=name, error=text)
            return
        choice = said["choices"][0]
        self.answer(
            "done",
            id=name,
            tokens=choice["token_ids"],
            finish_reason=choice["finish_reason"],
            kv_transfer_params=said.get("kv_transfer_params"),
            seconds=round(time.monotonic() - begun, 3),
        )

    def metrics(self) -> dict[str, float]:
        """Read what the connector counts, without the prefix of its names."""
        found: dict[str, float] = {}
        with self._open("/metrics") as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.rpartition(" ")
                if line.startswith("kvferry:") and name.partition("{")[0].endswith("_total"):
                    word = name.partition("{")[0].removeprefix("kvferry:").removesuffix("_total")
                    found[word] = found.get(word, 0) + float(value)
        return found

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _open(self, path: str, body: bytes | None = None, name: str = "") -> HTTPResponse:
        asked = urllib.request.Request(
            f"http://{HOST}:{self._port}{path}", body, {"content-type": "application/json", "x-request-id": name}
        )
        answer: HTTPResponse = urllib.request.urlopen(asked, timeout=PATIENCE)  # noqa: S310 # It is ours.
        return answer


def _with_us() -> None:
    """Have a process end when this one does, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=("single", *KV_ROLES), required=True)
    parser.add_argument("--model", required=True, metavar="DIRECTORY")
    parser.add_argument("--ranks", type=int, default=1, help="of tensor parallelism")
    parser.add_argument("--batched-tokens", type=int, default=4096)
    parser.add_argument("--failure-policy", choices=("fail", "recompute"), default="fail")
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--connector", default="KvferryConnector", metavar="CLASS")
    parser.add_argument("--connector-module", default="kvferry.vllm", metavar="MODULE")
    parser.add_argument("--extra", default="{}", metavar="JSON")
    return parser.parse_args()


def main() -> None:
    """Do what the command line says."""
    server = Server(arguments())
    try:
        begun = time.monotonic()
        server.ready()
        server.answer("ready", seconds=round(time.monotonic() - begun, 1))
        for line in sys.stdin:
            match json.loads(line):
                case {"op": "add", "id": str(name), "prompt": list(prompt), "new_tokens": int(count), **rest}:
                    given = (name, prompt, count, rest.get("kv_transfer_params"))
                    threading.Thread(target=server.add, args=given, daemon=True).start()
                case {"op": "metrics"}:
                    server.answer("metrics", counts=server.metrics())
                case {"op": "stop"}:
                    return
                case unknown:
                    raise ValueError(f"{unknown!r} is no command")
    finally:
        server.stop()


if __name__ == "__main__":
    main()

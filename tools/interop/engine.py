"""Runs one vLLM engine, in one process, for commands that come as JSON, one a line; answers go out likewise.

usage: engine.py --role single|prefill|decode|both --model DIRECTORY [--id NAME] [--host HOST] [--port PORT] ...

Commands, on the standard input:

    {"op": "add", "id": ID, "prompt": [TOKEN...], "new_tokens": N, "kv_transfer_params": {...} or null}
    {"op": "abort", "id": ID}
    {"op": "metrics"}
    {"op": "stop"}               as the end of the input

Answers, on the standard output. Everything else that the engine prints goes to the standard error:

    {"op": "ready", "engine_id", "host", "port", "tp_size", "block_size", "num_blocks", "seconds"}
    {"op": "begun", "id": ID}    the engine has taken the request up: a decode engine has asked for its blocks
    {"op": "done", "id": ID, "tokens", "finish_reason", "kv_transfer_params", "cached_tokens", "seconds", "first_at"}
                                 first_at is when the first token was there, by time.monotonic()
    {"op": "metrics", "counts": {NAME: VALUE}}    of the connector, as they are in vLLM's /metrics
    {"op": "bye"}

The connector is vLLM's own NixlPushConnector, unmodified, or the one that is named; a single engine has none.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vllm import LLMEngine, RequestOutput

# Between two steps: an engine that waits for KV would else take a whole core, and its peers may have no other.
PAUSE = 0.001

# The side that KV flows to or from, in vLLM's words.
KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer", "both": "kv_both"}

# Scheduler and worker in this process, no reports, no look-ups, no pinning of cores that others use too.
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=("single", *KV_ROLES), required=True)
    parser.add_argument("--model", required=True, metavar="DIRECTORY")
    parser.add_argument("--id", default="engine", help="the engine's id; peers know it by this")
    parser.add_argument("--host", default="127.0.0.1", help="of the side channel")
    parser.add_argument("--port", type=int, default=5600, help="of the side channel")
    parser.add_argument("--block-size", type=int, help="in tokens, if not as the engine would choose")
    parser.add_argument("--num-blocks", type=int, help="of the cache, if not as many as fit into 1 GiB")
    parser.add_argument("--longest", type=int, default=4096, help="request, in tokens")
    parser.add_argument("--batched-tokens", type=int, help="that a step computes at most, if not the longest request")
    parser.add_argument("--failure-policy", choices=("fail", "recompute"), default="fail")
    parser.add_argument("--prefix-caching", action="store_true", help="reuse blocks of earlier requests")
    parser.add_argument("--connector", default="NixlPushConnector", metavar="CLASS")
    parser.add_argument("--connector-module", metavar="MODULE", help="where that class is, if it is not vLLM's own")
    parser.add_argument("--beside", action="store_true", help="have beside.py's connector asked before that one")
    parser.add_argument("--extra", default="{}", metavar="JSON", help="the connector's own settings")
    return parser.parse_args()


def settle_llvmlite() -> None:
    """Have what llvmlite loads late answer no special names: vLLM 0.32 asks for them when numba was imported first.

    LMCache imports numba.
    """
    from llvmlite.binding import ffi  # noqa: PLC0415 # Engines without LMCache have no need of it.

    kind = type(ffi.lib)
    plain = kind.__getattr__

    def answer(lib: object, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return plain(lib, name)

    kind.__getattr__ = answer


def build(asked: argparse.Namespace) -> LLMEngine:
    """Make the engine."""
    if asked.connector.startswith("LMCache"):
        settle_llvmlite()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = asked.host
    os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(asked.port)

    from vllm import EngineArgs, LLMEngine  # noqa: PLC0415 # It reads the environment as it is imported.
    from vllm.config import KVTransferConfig  # noqa: PLC0415

    settings: dict[str, Any] = {
        "model": asked.model,
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "max_model_len": asked.longest,
        "max_num_seqs": 16,
        "max_num_batched_tokens": asked.batched_tokens or asked.longest,
        "seed": 0,
        "enable_prefix_caching": asked.prefix_caching,
    }
    if asked.block_size:
        settings["block_size"] = asked.block_size
    if asked.num_blocks:
        settings["num_gpu_blocks_override"] = asked.num_blocks
    if asked.role in KV_ROLES:
        connector = {
            "kv_connector": asked.connector,
            "kv_connector_module_path": asked.connector_module,
            "kv_role": KV_ROLES[asked.role],
            "kv_connector_extra_config": json.loads(asked.extra),
        }
        if asked.beside:
            first = {
                "kv_connector": "BesideConnector",
                "kv_connector_module_path": "beside",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {},
            }
            connector = {
                "kv_connector": "MultiConnector",
                "kv_role": KV_ROLES[asked.role],
                "kv_connector_extra_config": {"connectors": [first, connector]},
            }
        settings["kv_transfer_config"] = KVTransferConfig(
            **connector, engine_id=asked.id, kv_load_failure_policy=asked.failure_policy
        )
    return LLMEngine.from_engine_args(EngineArgs(**settings))


class Driver:
    """Steps an engine and answers for it."""

    def __init__(self, engine: LLMEngine, answers: TextIO) -> None:
        """Drive an engine."""
        self._engine = engine
        self._answers = answers
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._added: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._unbegun: list[str] = []

    def answer(self, op: str, **what: object) -> None:
        """Say something."""
        self._answers.write(json.dumps({"op": op, **what}) + "\n")
        self._answers.flush()

    def listen(self, source: TextIO) -> None:
        """Take commands until the source ends."""
        for line in source:
            self._commands.put(json.loads(line))
        self._commands.put({"op": "stop"})

    def run(self) -> None:
        """Step until told to stop. An engine of a pair works when it has no request too: for its peer."""
        while self._obey():
            begun, self._unbegun = self._unbegun, []
            for out in self._engine.step():
                if out.outputs[0].token_ids:
                    self._first.setdefault(out.request_id, time.monotonic())
                if out.finished:
                    self._done(out)
            for name in begun:
                self.answer("begun", id=name)
            time.sleep(PAUSE)
        self.answer("bye")

    def _obey(self) -> bool:
        """Do what is asked for; say whether to go on."""
        while not self._commands.empty():
            match self._commands.get():
                case {"op": "add", "id": str(name), "prompt": list(prompt), "new_tokens": int(count), **rest}:
                    self._add(name, prompt, count, rest.get("kv_transfer_params"))
                case {"op": "abort", "id": str(name)}:
                    self._added.pop(name, None)
                    self._first.pop(name, None)
                    self._engine.abort_request([name])
                case {"op": "metrics"}:
                    self.answer("metrics", counts=metrics())
                case {"op": "stop"}:
                    return False
                case unknown:
                    raise ValueError(f"{unknown!r} is no command")
        return True

    def _add(self, name: str, prompt: list[int], count: int, params: object) -> None:
        from vllm import SamplingParams  # noqa: PLC0415

        self._added[name] = time.monotonic()
        self._unbegun.append(name)
        sampling = SamplingParams(
            temperature=0,
            max_tokens=count,
            ignore_eos=True,
            detokenize=False,
            extra_args={"kv_transfer_params": params} if params else None,
        )
        self._engine.add_request(name, {"prompt_token_ids": prompt}, sampling)

    def _done(self, out: RequestOutput) -> None:
        first = self._first.pop(out.request_id, None)
        added = self._added.pop(out.request_id, None)
        if added is None:  # It was aborted.
            return
        self.answer(
            "done",
            id=out.request_id,
            tokens=list(out.outputs[0].token_ids),
            finish_reason=out.outputs[0].finish_reason,
            kv_transfer_params=out.kv_transfer_params,
            cached_tokens=out.num_cached_tokens,
            seconds=round(time.monotonic() - added, 3),
            first_at=first,
        )


def metrics() -> dict[str, float]:
    """Read what the connector counts, without the prefix of its names; of vLLM's own the sums, with their names."""
    from prometheus_client import REGISTRY  # noqa: PLC0415 # vLLM brings it.

    found = {}
    for sample in (s for family in REGISTRY.collect() for s in family.samples):
        if sample.name.startswith("kvferry:") and sample.name.endswith("_total"):
            found[sample.name[len("kvferry:") : -len("_total")]] = sample.value
        elif sample.name.startswith("vllm:nixl_") and sample.name.endswith(("_sum", "_total")):
            found[sample.name[len("vllm:") :]] = sample.value
    return found


def main() -> None:
    """Do what the command line says."""
    asked = arguments()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Logs of the engine, and of the libraries below it.
    begun = time.monotonic()
    engine = build(asked)
    driver = Driver(engine, answers)
    cache = engine.vllm_config.cache_config
    driver.answer(
        "ready",
        engine_id=asked.id,
        host=asked.host,
        port=asked.port,
        tp_size=engine.vllm_config.parallel_config.tensor_parallel_size,
        block_size=cache.block_size,
        num_blocks=cache.num_gpu_blocks,
        seconds=round(time.monotonic() - begun, 1),
    )
    threading.Thread(target=driver.listen, args=(sys.stdin,), daemon=True).start()
    driver.run()
    # An agent of libnixl sometimes faults as the process takes itself down, after all its work.
    os._exit(0)


if __name__ == "__main__":
    main()

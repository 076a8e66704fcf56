"""Compares KvferryConnector with the classes of the vLLM that is installed: which methods it has, and what they take.

Requests of vLLM's own class, with each input beside tokens, must have names that differ: what its own block hash knows
of a request is known here.

usage: classes.py [VERSION]      VERSION: how the release that is meant begins

Exit code: 0 if all fits.
"""

from __future__ import annotations

import inspect
import json
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import vllm
from kvferry.vllm import KvferryConnector, block_hash, connector, versions
from kvferry.vllm.chunk_names import ChunkNames
from kvferry.vllm.request_inputs import RequestInputs, UnnamableInputError
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request

# Tokens of the requests that are named, of a block, and how long a digest may take, in seconds.
TOKENS, BLOCK, PATIENCE = 40, 16, 60.0


def calls(method: object) -> list[tuple[str, object]]:
    """Give what a method is called with, by names and kinds. A default that only one side has is none of that."""
    found = inspect.signature(getattr(method, "__func__", method)).parameters.values()  # type: ignore[arg-type]
    return [(each.name, each.kind) for each in found]


def differences() -> list[str]:
    """Say what does not fit."""
    theirs, found = base.KVConnectorBase_V1, []
    versions.check_version(vllm.__version__, connector.USED_CLASSES)
    if not versions.is_tested(vllm.__version__):
        found.append(f"vLLM {vllm.__version__} is not among the releases that were tried: {versions.TESTED}")
    if KvferryConnector.__abstractmethods__:
        found.append(f"not made: {sorted(KvferryConnector.__abstractmethods__)}")
    for name, ours in vars(KvferryConnector).items():
        plain = getattr(ours, "__func__", ours)
        if name.startswith("_") or not callable(plain):
            continue
        there = getattr(theirs, name, None) or getattr(base.SupportsHMA, name, None)
        if there is None:
            found.append(f"{name} is no method of vLLM's: nobody calls it")
        elif calls(there) != calls(plain):
            found.append(f"{name} is called with {calls(there)}, and takes {calls(plain)}")
    if KVConnectorFactory.get_connector_class_by_name("KvferryConnector") is not KvferryConnector:
        found.append("vLLM's registry has another connector of that name")
    return found


def names_that_fail() -> list[str]:
    """Name requests that differ by one input each; say which of them have no name, or that of another."""
    found: list[str] = []
    inputs = RequestInputs(BLOCK, PATIENCE, adapter_folder=block_hash.adapter_folder, extra_keys=block_hash.extra_keys)
    names, seen = ChunkNames("m", 1, 0, "float", "layout", BLOCK), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for what, depends in _requests(Path(folder)).items():
            request = Request(what, list(range(TOKENS)), SamplingParams(max_tokens=1), None, **depends)
            while not inputs.is_ready(request):
                pass
            try:
                inputs.check_inputs(request)
                last = names.chunk_keys(inputs.make_prompt(request, TOKENS))[-1]
            except UnnamableInputError as error:
                found.append(f"a request with {what} has no name: {error}")
                continue
            if last in seen:
                found.append(f"a request with {what} has the name of one with {seen[last]}")
            seen[last] = what
    inputs.close()
    return found


def _requests(folder: Path) -> dict[str, dict[str, Any]]:
    """Give what requests have beside tokens, by what that is."""
    place = PlaceholderRange(offset=0, length=8)
    made: dict[str, dict[str, Any]] = {"nothing": {}, "a salt": {"cache_salt": "s"}}
    for name in ("one adapter", "another adapter"):
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(json.dumps({"name": name}))
        made[name] = {"lora_request": LoRARequest("adapter", len(made), str(folder / name))}
    for identifier in ("one image", "another image"):
        feature = MultiModalFeatureSpec(data=None, modality="image", identifier=identifier, mm_position=place)
        made[identifier] = {"mm_features": [feature]}
    for seed in (1, 2):
        rows = torch.randn(TOKENS, 8, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
        made[f"embeddings {seed}"] = {"prompt_embeds": rows, "prompt_is_token_ids": [i < 4 for i in range(TOKENS)]}
    return made


def told() -> list[str]:
    """See that what the workers of two ranks tell comes to the scheduler's side through vLLM's own classes."""
    outputs = []
    for rank in range(2):
        said = connector.WorkerInfos({rank: f"what rank {rank} knows"})
        output = KVConnectorOutput(kv_connector_worker_meta=said)
        outputs.append(pickle.loads(pickle.dumps(ModelRunnerOutput.with_kv_conn_output_only(output))))  # noqa: S301
    aggregated = KVOutputAggregator(2).aggregate(outputs)
    ranks = aggregated.kv_connector_output.kv_connector_worker_meta.ranks
    return [] if set(ranks) == {0, 1} else [f"of what two ranks tell, {sorted(ranks)} came"]


def main() -> int:
    """Do what the command line says."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    found = [*differences(), *told(), *names_that_fail()]
    if not vllm.__version__.startswith(wanted):
        found.append(f"{vllm.__file__} is vLLM {vllm.__version__}, want {wanted}")
    print(f"vLLM {vllm.__version__}: {len(vars(KvferryConnector))} members compared, {len(found)} do not fit")
    for each in found:
        print(f"  {each}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

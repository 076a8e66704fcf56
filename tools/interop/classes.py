"""Compares KvferryConnector with the classes of the vLLM that is installed: which methods it has, and what they take.

usage: classes.py [VERSION]      VERSION: how the release that is meant begins

Exit code: 0 if all fits.
"""

from __future__ import annotations

import inspect
import pickle
import sys

import vllm
from kvferry.vllm import KvferryConnector, connector, versions
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput


def calls(method: object) -> list[tuple[str, object]]:
    """Give what a method is called with, by names and kinds. A default that only one side has is none of that."""
    found = inspect.signature(getattr(method, "__func__", method)).parameters.values()  # type: ignore[arg-type]
    return [(each.name, each.kind) for each in found]


def differences() -> list[str]:
    """Say what does not fit."""
    theirs, found = base.KVConnectorBase_V1, []
    versions.check_version(vllm.__version__, connector.CLASSES)
    if not versions.supported(vllm.__version__):
        found.append(f"vLLM {vllm.__version__} is not among the releases that were tried: {versions.TRIED}")
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


def told() -> list[str]:
    """See that what the workers of two ranks tell comes to the scheduler's side through vLLM's own classes."""
    outputs = []
    for rank in range(2):
        said = connector.WorkerInfos({rank: connector.WorkerInfo(f"names of {rank}", "duties")})
        output = KVConnectorOutput(kv_connector_worker_meta=said)
        outputs.append(pickle.loads(pickle.dumps(ModelRunnerOutput.with_kv_conn_output_only(output))))  # noqa: S301
    aggregated = KVOutputAggregator(2).aggregate(outputs)
    ranks = aggregated.kv_connector_output.kv_connector_worker_meta.ranks
    return [] if set(ranks) == {0, 1} else [f"of what two ranks tell, {sorted(ranks)} came"]


def main() -> int:
    """Do what the command line says."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    found = [*differences(), *told()]
    if not vllm.__version__.startswith(wanted):
        found.append(f"{vllm.__file__} is vLLM {vllm.__version__}, want {wanted}")
    print(f"vLLM {vllm.__version__}: {len(vars(KvferryConnector))} members compared, {len(found)} do not fit")
    for each in found:
        print(f"  {each}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""KvferryConnector: KV cache between engines of vLLM, by the kvferry agents of their hosts.

Have vLLM load it:

    --kv-transfer-config '{"kv_connector": "KvferryConnector", "kv_connector_module_path": "kvferry.vllm",
      "kv_role": "kv_producer", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"socket": "/run/kvferry/agent.sock"}}'

with "kv_consumer" at a decode engine, and "kv_both" at engines that share. docs/vllm.md has the rest, and
kvferry.vllm.settings all that the extra configuration takes. The prefill's request says where its KV goes, in LMCache's
words:

    "kv_transfer_params": {"disagg_spec": {"req_id": "r-1", "receiver_host": "10.0.0.2",
      "receiver_init_port": [7300], "receiver_alloc_port": [7400]}}

Its answer has the kv_transfer_params that the decode's request takes. What does not come is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvferry.vllm.connector import KvferryConnector

__all__ = ["KvferryConnector"]


def __getattr__(name: str) -> Any:
    """Import what stands on vLLM when it is asked for: the rest is of use, and is tested, without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from kvferry.vllm import connector
    except ImportError as error:
        from kvferry.vllm import versions

        raise versions.import_failure(error) from error

    return getattr(connector, name)

"""KvferryConnector: KV cache transfer between engines of vLLM through the kvferry agents of their hosts.

Load it in vLLM with:

    --kv-transfer-config '{"kv_connector": "KvferryConnector", "kv_connector_module_path": "kvferry.vllm",
      "kv_role": "kv_producer", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"socket": "/run/kvferry/agent.sock"}}'

with "kv_consumer" at a decode engine, and "kv_both" at engines that share. kvferry.vllm.settings documents the extra
configuration, docs/vllm.md everything else. The request to the prefill engine names the receiver of its KV, in
LMCache's format:

    "kv_transfer_params": {"disagg_spec": {"req_id": "r-1", "receiver_host": "10.0.0.2",
      "receiver_init_port": [7300], "receiver_alloc_port": [7400]}}

Its response contains the kv_transfer_params for the request to the decode engine. KV that does not arrive is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvferry.vllm.connector import KvferryConnector

__all__ = ["KvferryConnector"]


def __getattr__(name: str) -> Any:
    """Import KvferryConnector on first use, because it needs vLLM. The other modules work and are tested without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from kvferry.vllm import connector
    except ImportError as error:
        from kvferry.vllm import versions

        raise versions.import_failure(error) from error

    return getattr(connector, name)

"""LMCache over kvferry agents: an L2 adapter for its multi-process server, and a storage plug-in for engines.

The multi-process server takes the adapter as

    --l2-adapter '{"type": "native_plugin", "module_path": "kvferry.lmcache", "class_name": "KvferryL2",
      "adapter_params": {"socket": "/run/kvferry/agent.sock", "weights": "llama-3 of July"}}'

and LMCache in an engine's process takes the plug-in by its configuration:

    storage_plugins: [kvferry]
    extra_config:
      storage_plugin.kvferry.module_path: kvferry.lmcache
      storage_plugin.kvferry.class_name: KvferryBackend
      kvferry: {socket: /run/kvferry/agent.sock}

kvferry.lmcache.settings has all that both take, docs/lmcache.md the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvferry.lmcache.l2 import KvferryL2

if TYPE_CHECKING:
    from kvferry.lmcache.backend import KvferryBackend

__all__ = ["KvferryBackend", "KvferryL2"]


def __getattr__(name: str) -> Any:
    """Import what stands on LMCache when it is asked for: the rest is of use, and is tested, without."""
    if name != "KvferryBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvferry.lmcache import backend

    return backend.KvferryBackend

"""LMCache over kvferry agents: an L2 adapter for its multi-process server, and a storage plug-in for engines.

The multi-process server loads the adapter with

    --l2-adapter '{"type": "native_plugin", "module_path": "kvferry.lmcache", "class_name": "KvferryL2",
      "adapter_params": {"socket": "/run/kvferry/agent.sock", "weights": "llama-3 of July"}}'

and LMCache in an engine's process loads the plug-in with this configuration:

    storage_plugins: [kvferry]
    extra_config:
      storage_plugin.kvferry.module_path: kvferry.lmcache
      storage_plugin.kvferry.class_name: KvferryBackend
      kvferry: {socket: /run/kvferry/agent.sock}

kvferry.lmcache.settings documents the settings of both, docs/lmcache.md everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvferry.lmcache.l2 import KvferryL2

if TYPE_CHECKING:
    from kvferry.lmcache.backend import KvferryBackend

__all__ = ["KvferryBackend", "KvferryL2"]


def __getattr__(name: str) -> Any:
    """Import KvferryBackend on first use, because it needs LMCache. The other modules work and are tested without
    it.
    """
    if name != "KvferryBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvferry.lmcache import backend

    return backend.KvferryBackend

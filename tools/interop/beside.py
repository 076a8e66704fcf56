"""A connector that loads whole blocks before the forward pass that needs them, to stand beside another one.

So do vLLM's ExampleConnector and LMCacheConnectorV1. It keeps blocks in the engine's process, and no bound of them.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

# What each block of a prompt has in all layers, by the name of all tokens up to its end.
_KEPT: dict[str, list[bytes]] = {}


def names(tokens: Sequence[int], block: int) -> list[str]:
    """Name the whole blocks of a prompt."""
    ends = range(block, len(tokens) + 1, block)
    return [hashlib.sha256(repr(list(tokens[:end])).encode()).hexdigest() for end in ends]


def memory(block: Any) -> Any:  # noqa: ANN401 # It is torch's.
    """View a block's bytes."""
    return (ctypes.c_char * (block.numel() * block.element_size())).from_address(block.data_ptr())


@dataclass
class Work(KVConnectorMetadata):  # type: ignore[misc] # vLLM is not there where types are checked.
    """Blocks to be loaded and to be kept in a step, by names."""

    loads: list[tuple[str, int]] = field(default_factory=list)
    saves: list[tuple[str, int]] = field(default_factory=list)


class BesideConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See the module."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:  # noqa: ANN401
        """Begin with nothing."""
        super().__init__(vllm_config, role, kv_cache_config)
        self._block = vllm_config.cache_config.block_size
        self._next = Work()
        self._computed: dict[str, int] = {}
        self._layers: list[Any] = []

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Take the cache."""
        self._layers = list(kv_caches.values())

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Fill blocks."""
        del forward_context, kwargs
        for name, block in self._get_connector_metadata().loads:
            for layer, kept in zip(self._layers, _KEPT[name], strict=True):
                ctypes.memmove(layer[block].data_ptr(), kept, len(kept))

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: all is loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Do nothing: blocks are kept when their request ends."""

    def wait_for_save(self) -> None:
        """Keep blocks."""
        for name, block in self._get_connector_metadata().saves:
            _KEPT.setdefault(name, [bytes(memory(layer[block])) for layer in self._layers])

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:  # noqa: ANN401
        """Say what is kept of a prompt, but for its last token."""
        self._computed[request.request_id] = num_computed_tokens
        kept = [name in _KEPT for name in names(request.prompt_token_ids[:-1], self._block)]
        count = kept.index(False) if False in kept else len(kept)
        return max(0, count * self._block - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:  # noqa: ANN401
        """Know the blocks that are to be filled."""
        first = self._computed[request.request_id] // self._block
        end = first + num_external_tokens // self._block
        named = zip(names(request.prompt_token_ids, self._block), blocks.get_block_ids()[0], strict=False)
        self._next.loads += list(named)[first:end]

    def build_connector_meta(self, scheduler_output: Any) -> Work:  # noqa: ANN401
        """Give what there is to do."""
        del scheduler_output
        work, self._next = self._next, Work()
        return work

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:  # noqa: ANN401
        """Have a prompt's blocks kept. Nobody writes them before the next step."""
        self._next.saves += zip(names(request.prompt_token_ids, self._block), block_ids, strict=False)
        self._computed.pop(request.request_id, None)
        return False, None

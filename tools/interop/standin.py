"""A stand-in for what LMCache has for GPUs alone: copies between KV of vLLM on a CPU and LMCache's memory objects.

LMCacheOnCPU is vLLM's own LMCacheConnectorV1, whose LMCache has this in place of its connector to a GPU. Blocks are
copied whole, so chunks have whole blocks, and a prompt's last part is not stored (save_unfull_chunk: false).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lmcache.v1.gpu_connector as connectors
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1

if TYPE_CHECKING:
    from collections.abc import Iterator


class Blocks(connectors.GPUConnectorInterface):  # type: ignore[misc] # LMCache is not there where types are checked.
    """Whole blocks of all layers, one after the other."""

    def to_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:  # noqa: ANN401
        """Copy a chunk to its blocks."""
        whole = torch.frombuffer(memory_obj.byte_array, dtype=torch.uint8)
        for place, block in self._pieces(start, end, **kwargs):
            block.copy_(whole[place : place + len(block)])

    def from_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:  # noqa: ANN401
        """Copy a chunk's blocks to it."""
        whole = torch.frombuffer(memory_obj.byte_array, dtype=torch.uint8)
        for place, block in self._pieces(start, end, **kwargs):
            whole[place : place + len(block)] = block

    def batched_to_gpu(self, memory_objs: Any, starts: Any, ends: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Copy chunks to their blocks."""
        for found, start, end in zip(memory_objs, starts, ends, strict=True):
            self.to_gpu(found, start, end, **kwargs)

    def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Copy chunks' blocks to them."""
        for found, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(found, start, end, **kwargs)

    def get_shape(self, num_tokens: int) -> torch.Size:
        """Say nothing: what is copied has no shape."""
        raise NotImplementedError

    @staticmethod
    def _pieces(
        start: int, end: int, *, kvcaches: list[torch.Tensor], slot_mapping: torch.Tensor, **_: object
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Give each block of each layer as bytes, and its place in the chunk."""
        size = kvcaches[0].shape[2]
        slots = slot_mapping[start:end:size]
        if (end - start) % size or bool((slots % size).any()):
            raise ValueError(f"tokens {start} to {end} are no whole blocks")
        place = 0
        for block in (slots // size).tolist():
            for layer in kvcaches:
                piece = layer[block].view(-1).view(torch.uint8)
                yield place, piece
                place += len(piece)


class LMCacheOnCPU(LMCacheConnectorV1):  # type: ignore[misc] # Nor is vLLM.
    """See the module. Its extra configuration names LMCache's file: lmcache_file."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:  # noqa: ANN401
        """Have LMCache make Blocks."""
        os.environ["LMCACHE_CONFIG_FILE"] = vllm_config.kv_transfer_config.kv_connector_extra_config["lmcache_file"]
        connectors.CreateGPUConnector = lambda *_, **__: Blocks()
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)

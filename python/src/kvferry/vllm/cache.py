"""An engine's KV cache, as bytes of blocks.

A page of the agent's pool has a chunk, block after block, and of each block what every layer has of it. So the part of
a chunk that has fewer blocks is the beginning of its page. What the bytes of a block mean is the engine's own matter:
blocks are copied whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvferry.vllm.settings import Engine, refused

Bytes = npt.NDArray[np.uint8]


class Cache:
    """The layers of one rank."""

    def __init__(self, layers: Mapping[str, Any], engine: Engine, machine: str) -> None:
        """Look at the tensors that vLLM registers, and refuse what is no plain cache of blocks.

        Machine says what else the meaning of bytes depends on.
        """
        if not layers:
            raise refused("kv_caches", "none", "a tensor for each layer", "use a model with attention")
        self._tensors = dict(layers)  # Their memory is used for as long as this is.
        self._rows: list[Bytes] = []
        said, seen = [f"{machine} blocks of {engine.block_tokens}"], set()
        for name, tensor in self._tensors.items():
            self._check(name, tensor, engine)
            dtype = str(tensor.dtype)
            said.append(f"{name} {list(tensor.shape[1:])} {list(tensor.stride()[1:])} {dtype}")
            if tensor.data_ptr() not in seen:  # Layers may share what one of them computes.
                seen.add(tensor.data_ptr())
                self._rows.append(_rows(tensor))
        self.dtype = str(next(iter(self._tensors.values())).dtype)
        self.layout = "; ".join(said)
        # Of one block in all layers.
        self.block_bytes: int = sum(row.shape[1] for row in self._rows)

    @staticmethod
    def _check(name: str, tensor: Any, engine: Engine) -> None:
        device = str(tensor.device).split(":", maxsplit=1)[0]
        if device != "cpu":
            raise refused(f"device of {name}", device, "cpu", "this version copies blocks of host memory alone")
        shape = list(tensor.shape)
        if len(shape) < 2 or shape[0] != engine.blocks:
            raise refused(
                f"shape of {name}",
                str(shape),
                f"{engine.blocks} blocks first",
                "choose an attention backend whose cache is one tensor a layer, blocks first",
            )
        block = tensor[0]
        if not block.is_contiguous():
            raise refused(
                f"strides of {name}",
                str(list(tensor.stride())),
                "a block without gaps",
                "choose another VLLM_KV_CACHE_LAYOUT",
            )
        size = block.numel() * tensor.element_size()
        if size != engine.block_bytes:
            raise refused(
                f"bytes of a block of {name}",
                str(size),
                f"{engine.block_bytes}, as the cache's specification has it",
                "choose another attention backend: this one pads its blocks, or splits them",
            )

    def gather(self, blocks: Sequence[int], page: Bytes) -> None:
        """Copy blocks to the beginning of a page."""
        at = 0
        for block in blocks:
            for row in self._rows:
                page[at : at + row.shape[1]] = row[block]
                at += row.shape[1]

    def scatter(self, page: Bytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page, without its first blocks, to blocks."""
        at = skip * self.block_bytes
        for block in blocks:
            for row in self._rows:
                row[block] = page[at : at + row.shape[1]]
                at += row.shape[1]


def _rows(tensor: Any) -> Bytes:
    """View a tensor's memory, a row for each block. Blocks of a layer may be apart from each other."""
    width = tensor[0].numel() * tensor.element_size()
    apart = tensor.stride()[0] * tensor.element_size()
    count = tensor.shape[0]
    memory = (ctypes.c_uint8 * ((count - 1) * apart + width)).from_address(tensor.data_ptr())
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, np.uint8), (count, width), (apart, 1), writeable=True)


def chunk_blocks(cache: Cache, engine: Engine, page_bytes: int, shape: Sequence[int]) -> int:
    """Say how many blocks a page of the agent has; refuse pages that do not have whole ones."""
    blocks, rest = divmod(page_bytes, cache.block_bytes)
    if rest or not blocks:
        token, rest = divmod(cache.block_bytes, engine.block_tokens)
        of_token = f"{token} bytes of a token" if not rest else f"{cache.block_bytes} bytes of a block"
        raise refused(
            "page of the agent",
            f"{page_bytes} bytes, a chunk of shape {list(shape)}",
            f"a multiple of {cache.block_bytes} bytes, a block of {engine.block_tokens} tokens in all layers",
            f"mend layout and chunk_size of the agent's file: the engine has {of_token} at a rank",
        )
    tokens = blocks * engine.block_tokens
    if tokens not in shape:
        raise refused(
            "chunk_size of the agent",
            f"a chunk of shape {list(shape)}",
            f"{tokens} tokens, which have the page's {page_bytes} bytes in this engine",
            "mend layout and chunk_size of the agent's file",
        )
    return blocks

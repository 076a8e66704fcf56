"""An engine's KV cache, as bytes of blocks.

A page of the agent's pool has a chunk, or one layer of it. A layer has the chunk's blocks, one after the other. In a
page of all layers are the first halves of what each layer has, in the layers' order, and then the second ones: an agent
puts it together so where the other end has layers. With one latent head (mla) there are no halves. A part of a chunk
has fewer blocks, and no gaps. What the bytes of a block mean is the engine's own matter: all of them are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from kvferry.errors import wrong
from kvferry.npu import DeviceBytes
from kvferry.vllm import home
from kvferry.vllm.device import Device
from kvferry.vllm.host import Host
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
        own: list[Any] = []
        # All tensors that have the memory of one of those that compute their own.
        self._alike: list[list[Any]] = []
        # Which of them a layer has that computes its own.
        self.places: dict[str, int] = {}
        said, seen = [f"{machine} blocks of {engine.block_tokens}"], set()
        device = next(iter(self._tensors.values())).device
        for name, tensor in self._tensors.items():
            self._check(name, tensor, engine, str(device))
            dtype = str(tensor.dtype)
            said.append(f"{name} {list(tensor.shape[1:])} {list(tensor.stride()[1:])} {dtype}")
            if tensor.data_ptr() not in seen:  # Layers may share what one of them computes.
                seen.add(tensor.data_ptr())
                self.places[name] = len(own)
                own.append(tensor)
                self._alike.append([])
            at = next(i for i, one in enumerate(own) if one.data_ptr() == tensor.data_ptr())
            self._alike[at].append(tensor)
        self.dtype = str(next(iter(self._tensors.values())).dtype)
        self.layout = "; ".join(said)
        # Parts of what a layer has, by which pages of all layers are put together: the agent knows.
        self.stripes = 1
        # How many layers compute KV of their own; bytes that one of them has of a block, and that all have.
        self.layers = len(own)
        self.layer_bytes = engine.block_bytes
        self.block_bytes = self.layers * self.layer_bytes
        self._mover = Host(own) if kind_of_device(own[0]) == "cpu" else Device(own)

    @staticmethod
    def _check(name: str, tensor: Any, engine: Engine, device: str) -> None:
        if str(tensor.device) != device:
            raise refused(f"device of {name}", str(tensor.device), device, "give a rank one device")
        shape = list(tensor.shape)
        if len(shape) < 2 or shape[0] != engine.blocks:
            raise refused(
                f"shape of {name}",
                str(shape),
                f"{engine.blocks} blocks first",
                "choose an attention backend whose cache is one tensor a layer, blocks first",
            )
        block = tensor[0]
        if not _dense(block):
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

    # ---- where it is ----

    def unmovable(self) -> str:
        """Say why the cache cannot be in other memory; nothing if it can."""
        for tensors in self._alike:
            one = tensors[0]
            if kind_of_device(one) != "cpu":
                return f"it is memory of {one.device}, which no agent registers"
            apart = one.stride()[0] * one.element_size()
            if apart != self.layer_bytes:
                return f"blocks of a layer are {apart} bytes apart, and have {self.layer_bytes}"
        return ""

    def move(self, regions: Sequence[Bytes] | None) -> None:
        """Have each layer in one of these, which has a row for each block; without them in memory of its own.

        What the cache has comes along, but to memory of its own.
        """
        for layer, tensors in enumerate(self._alike):
            blocks = tensors[0].shape[0]
            if regions is None:
                there = np.empty((blocks, self.layer_bytes), np.uint8)
            else:
                there = regions[layer][:blocks]
                there[:] = Host(tensors[:1]).rows(0)
            for tensor in tensors:
                home.put_at(tensor, there.reshape(-1))
        self._mover = Host([tensors[0] for tensors in self._alike])

    # ---- copies ----

    def mark(self) -> None:
        """Have later copies wait for what the engine was given to compute up to now. Its thread calls it."""
        self._mover.mark()

    def gather(self, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy blocks, in all layers, to the beginning of a page."""
        with self._filling(page, len(blocks) * self.block_bytes) as there:
            self._mover.gather(blocks, there, self.stripes)

    def scatter(self, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page that has all layers of a chunk, without its first blocks, to blocks."""
        self._mover.scatter(self._reading(page), skip, blocks, self.stripes)

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes | DeviceBytes) -> None:
        """Copy what one layer has of blocks to the beginning of a page."""
        with self._filling(page, len(blocks) * self.layer_bytes) as there:
            self._mover.gather_layer(layer, blocks, there)

    def scatter_layer(self, layer: int, page: Bytes | DeviceBytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy from a page that has one layer of a chunk."""
        self._mover.scatter_layer(layer, self._reading(page), skip, blocks)

    @contextmanager
    def _filling(self, page: Bytes | DeviceBytes, size: int) -> Iterator[Any]:
        """Give what is to be filled: the page, or for an engine on the host what is copied to the NPU that has it."""
        if isinstance(self._mover, Host) and isinstance(page, DeviceBytes):
            made = np.empty(size, np.uint8)
            yield made
            page.write(made)
        else:
            yield page

    def _reading(self, page: Bytes | DeviceBytes) -> Any:
        """Give what is to be read, likewise."""
        return page.read() if isinstance(self._mover, Host) and isinstance(page, DeviceBytes) else page

    def fits(self, size: int, blocks: int, of_block: int = 0) -> None:
        """Refuse pages of an agent that was started anew with another file, and chunks that somebody else made.

        Of a block they have so many bytes; 0: those of all layers.
        """
        wanted = blocks * (of_block or self.block_bytes)
        if size != wanted:
            raise wrong("copy", "page", f"{size} bytes", f"{wanted}", "start the agent with the file that it had")


def kind_of_device(tensor: Any) -> str:
    """Say where a tensor is; cpu: in host memory."""
    return str(tensor.device).split(":", maxsplit=1)[0]


def _dense(block: Any) -> bool:
    """Say whether a block has no gaps, in whatever order its bytes are."""
    wanted = 1
    for apart, count in sorted(zip(block.stride(), block.shape, strict=True)):
        if count > 1 and apart != wanted:
            return False
        wanted *= count
    return True


def chunk_blocks(cache: Cache, engine: Engine, page_bytes: int, shape: Sequence[int], layers: int) -> int:
    """Say how many blocks a page of the agent has; refuse pages that do not have whole ones.

    Layers is how many pages a chunk has, one for each layer; 0: one has all layers.
    """
    if layers not in (0, cache.layers):
        raise refused(
            "layers of the agent",
            str(layers),
            f"{cache.layers}, as the engine has at a rank",
            "mend layout.num_layers of the agent's file",
        )
    of_block = cache.layer_bytes if layers else cache.block_bytes
    of_layers = "one layer" if layers else "all layers"
    blocks, rest = divmod(page_bytes, of_block)
    if rest or not blocks:
        token, rest = divmod(of_block, engine.block_tokens)
        of_token = f"{token} bytes of a token" if not rest else f"{of_block} bytes of a block"
        raise refused(
            "page of the agent",
            f"{page_bytes} bytes, a chunk of shape {list(shape)}",
            f"a multiple of {of_block} bytes, a block of {engine.block_tokens} tokens in {of_layers}",
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

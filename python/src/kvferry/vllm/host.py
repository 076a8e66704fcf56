"""Copies between pages and a KV cache in host memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvferry.vllm.cache import Bytes


class HostCopier:
    """Copies blocks of one rank. The engine's computation is complete when its call returns."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        """Use the tensors of the layers, which have blocks as their first dimension and no gaps within blocks."""
        self._rows = [_byte_rows(tensor) for tensor in tensors]

    def rows(self, layer: int) -> Bytes:
        """Return the bytes of a layer, with one row for each block."""
        return self._rows[layer]

    def mark_computed(self) -> None:
        """Do nothing; see DeviceCopier."""

    def gather(self, blocks: Sequence[int], page: Bytes, stripes: int) -> None:
        """Copy blocks of all layers to the beginning of a page."""
        for layer, row in enumerate(self._rows):
            for place, block in enumerate(blocks):
                for at, offset, size in self._find_pieces(layer, place, len(blocks), stripes):
                    page[at : at + size] = row[block, offset : offset + size]

    def scatter(self, page: Bytes, skip: int, blocks: Sequence[int], stripes: int) -> None:
        """Copy a page with all layers of a chunk to blocks, without the first blocks of the chunk."""
        page_blocks = len(page) // (len(self._rows) * self._row_bytes)
        for layer, row in enumerate(self._rows):
            for place, block in enumerate(blocks, skip):
                for at, offset, size in self._find_pieces(layer, place, page_blocks, stripes):
                    row[block, offset : offset + size] = page[at : at + size]

    def gather_layer(self, layer: int, blocks: Sequence[int], page: Bytes) -> None:
        """Copy blocks of one layer to the beginning of a page."""
        row, width = self._rows[layer], self._row_bytes
        for place, block in enumerate(blocks):
            page[place * width : (place + 1) * width] = row[block]

    def scatter_layer(self, layer: int, page: Bytes, skip: int, blocks: Sequence[int]) -> None:
        """Copy a page with one layer of a chunk to blocks."""
        row, width = self._rows[layer], self._row_bytes
        for place, block in enumerate(blocks, skip):
            row[block] = page[place * width : (place + 1) * width]

    @property
    def _row_bytes(self) -> int:
        return int(self._rows[0].shape[1])

    def _find_pieces(self, layer: int, place: int, blocks: int, stripes: int) -> Iterator[tuple[int, int, int]]:
        """Yield where a layer's bytes of one block are in a page of so many blocks: (page offset, block offset,
        size).
        """
        begin, end = place * self._row_bytes, (place + 1) * self._row_bytes
        stripe_bytes = blocks * self._row_bytes // stripes
        while begin < end:
            stripe, at = divmod(begin, stripe_bytes)
            size = min(end - begin, stripe_bytes - at)
            yield (stripe * len(self._rows) + layer) * stripe_bytes + at, begin - place * self._row_bytes, size
            begin += size


def _byte_rows(tensor: Any) -> Bytes:
    """Return a tensor's memory, with one row for each block. Blocks of a layer may have gaps between them."""
    width = tensor[0].numel() * tensor.element_size()
    stride = tensor.stride()[0] * tensor.element_size()
    count = tensor.shape[0]
    memory = (ctypes.c_uint8 * ((count - 1) * stride + width)).from_address(tensor.data_ptr())
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, np.uint8), (count, width), (stride, 1), writeable=True)

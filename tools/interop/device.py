"""Compares the copies that torch does for caches on devices with those of host memory, byte for byte.

It runs on a CPU, whose streams torch has too, and on a GPU where there is one.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from kvferry.vllm.device import DeviceCopier
from kvferry.vllm.host import HostCopier

BLOCKS, HEADS, TOKENS, SIZE = 12, 2, 16, 8
ROUNDS = 200


def cache(draw: random.Random, layers: int) -> list[Any]:
    """Make layers whose blocks are apart from each other, some of them tokens first."""
    made = []
    for _ in range(layers):
        shape, order = ((HEADS, TOKENS), (0, 1, 2, 3)) if draw.random() < 0.5 else ((TOKENS, HEADS), (0, 2, 1, 3))
        whole = torch.empty((2 * BLOCKS, *shape, SIZE), dtype=torch.bfloat16)
        whole.view(torch.uint8).random_(0, 256)
        made.append(whole[::2].permute(order))
    return made


def page(size: int) -> npt.NDArray[np.uint8]:
    """Make a page."""
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def compare(seed: int, device: str) -> list[str]:
    """Do the same by both; say what differs."""
    draw = random.Random(seed)  # noqa: S311 # Not to be secret.
    torch.manual_seed(seed)
    layers, stripes = draw.randint(1, 5), draw.choice((1, 2))
    ours = cache(draw, layers)
    theirs = [tensor.clone(memory_format=torch.preserve_format).to(device) for tensor in ours]
    host, there = HostCopier(ours), DeviceCopier(theirs)
    width, wrong = HEADS * TOKENS * SIZE * 2, []
    blocks = draw.sample(range(BLOCKS), draw.randint(1, 4))
    skip, layer = draw.randrange(len(blocks)), draw.randrange(layers)
    one, other = page(len(blocks) * layers * width), page(len(blocks) * layers * width)
    host.gather(blocks, one, stripes)
    there.mark_computed()
    there.gather(blocks, other, stripes)
    if one.tobytes() != other.tobytes():
        wrong.append("gather")
    part = page(len(blocks) * width), page(len(blocks) * width)
    host.gather_layer(layer, blocks, part[0])
    there.gather_layer(layer, blocks, part[1])
    if part[0].tobytes() != part[1].tobytes():
        wrong.append("gather_layer")
    one.flags.writeable = False  # As what a get gives.
    to = draw.sample(range(BLOCKS), len(blocks) - skip)
    for mover in (host, there):
        mover.mark_computed()
        mover.scatter(one, skip, to, stripes)
        mover.scatter_layer(layer, part[0], skip, to[::-1])
    if not all(torch.equal(a.view(torch.int16), b.cpu().view(torch.int16)) for a, b in zip(ours, theirs, strict=True)):
        wrong.append("scatter or scatter_layer")
    return [f"seed {seed} on {device}: {what} differs" for what in wrong]


def main() -> int:
    """Compare on what there is."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    found = [line for device in devices for seed in range(ROUNDS) for line in compare(seed, device)]
    for line in found[:10]:
        print(line, file=sys.stderr)
    print(f"copies by torch: {ROUNDS} rounds on {' and '.join(devices)}, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

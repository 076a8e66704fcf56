"""Names of chunks. Whoever computes the same KV gives it the same name, in whichever process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvferry.vllm.settings import refused

if TYPE_CHECKING:
    from kvferry.vllm.words import Prompt

# Changes whenever what lies in a page does.
FORM = "kvferry.vllm/2"

# torch's names of types, and those of keys.
_DTYPES = {
    "float16": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "int8",
    "uint8": "uint8",
    "float8_e4m3fn": "fp8_e4m3fn",
    "float8_e4m3fnuz": "fp8_e4m3fnuz",
    "float8_e5m2": "fp8_e5m2",
    "float8_e5m2fnuz": "fp8_e5m2fnuz",
}


@dataclass(frozen=True)
class Names:
    """Names the chunks of one rank of one model."""

    model: str
    ranks: int
    rank: int
    # As keys name it.
    dtype: str
    # All that says what the bytes of a block mean. Engines in which that differs have no key in common: a miss.
    layout: str
    # Tokens of a chunk.
    chunk: int
    # Of a hash, in its name. LMCache's controllers, and directories, name no chunk by more than 64.
    bits: int = 256

    def keys(self, prompt: Prompt) -> list[str]:
        """Name the chunks of a prompt: model@ranks@rank@hash@dtype.

        A hash is of all tokens up to the end of the chunk. The last chunk may be a part of one.
        """
        state = hashlib.sha256("\0".join((FORM, self.layout, prompt.beside)).encode()).digest()
        tokens = np.asarray(prompt.tokens, "<u4")
        made = []
        for begin in range(0, len(tokens), self.chunk):
            state = hashlib.sha256(state + tokens[begin : begin + self.chunk].tobytes()).digest()
            made.append(self._key(state))
        return made

    def _key(self, state: bytes) -> str:
        return f"{self.model}@{self.ranks}@{self.rank}@{state.hex()[: self.bits // 4]}@{self.dtype}"


def dtype_name(of_torch: str) -> str:
    """Say how keys name a type of torch's."""
    plain = of_torch.removeprefix("torch.")
    if plain not in _DTYPES:
        raise refused("kv_cache_dtype", of_torch, f"one of {', '.join(_DTYPES)}", "set --kv-cache-dtype")
    return _DTYPES[plain]

"""Names of chunks. Whoever computes the same KV gives it the same name, in whichever process."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvferry.vllm.settings import unsupported_error

if TYPE_CHECKING:
    from kvferry.vllm.step_work import Prompt

# Changes whenever what lies in a page does, or what is hashed.
FORM = "kvferry.vllm/3"

# Hex digits of a hash that controllers and directories can be told.
_HASH_DIGITS = 16

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
class ChunkNames:
    """Names the chunks of one rank of one model."""

    # What people call the model. Which one it is, and with which weights, is in what is beside a prompt.
    model: str
    ranks: int
    rank: int
    # As keys name it.
    dtype: str
    # All that says what the bytes of a block mean. Engines in which that differs have no key in common: a miss.
    layout: str
    # Tokens of a chunk.
    chunk: int

    def chunk_keys(self, prompt: Prompt) -> list[str]:
        """Name the chunks of a prompt.

        A hash is of all that the KV of a chunk depends on: the tokens up to its end, what stands in place of some of
        them, and what is beside them. The last chunk may be a part of one.
        """
        state = hashlib.sha256("\0".join((FORM, self.layout, prompt.context)).encode()).digest()
        tokens = np.asarray(prompt.tokens, "<u4")
        keys = []
        for begin in range(0, len(tokens), self.chunk):
            chunk = tokens[begin : begin + self.chunk]
            spans = _encode_spans(prompt, begin, begin + len(chunk))
            state = hashlib.sha256(state + len(chunk).to_bytes(4, "little") + chunk.tobytes() + spans).digest()
            keys.append(self._format_key(state))
        return keys

    def _format_key(self, state: bytes) -> str:
        """Write a key of LMCache's form: model@ranks@rank@hash@dtype@tag.

        Controllers and directories know chunks by 64 bits, which anybody can find two prompts for. So these are only
        the hash, and the tag has the other 192 bits: agents compare both, and a chunk of another prompt is a miss.
        """
        digits = state.hex()
        return (
            f"{self.model}@{self.ranks}@{self.rank}@{digits[:_HASH_DIGITS]}@{self.dtype}@hash%{digits[_HASH_DIGITS:]}"
        )


def _encode_spans(prompt: Prompt, begin: int, end: int) -> bytes:
    """Write down what stands in place of tokens of a chunk; nothing where that is none."""
    found = [
        [span.begin - begin, min(span.end, end) - begin, span.content]
        for span in prompt.spans
        if span.begin < end and span.end > begin
    ]
    return json.dumps(found).encode() if found else b""


def dtype_name(torch_name: str) -> str:
    """Say how keys name a type of torch's."""
    name = torch_name.removeprefix("torch.")
    if name not in _DTYPES:
        raise unsupported_error("kv_cache_dtype", torch_name, f"one of {', '.join(_DTYPES)}", "set --kv-cache-dtype")
    return _DTYPES[name]

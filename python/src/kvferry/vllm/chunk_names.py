"""Names of chunks. All processes that compute the same KV give it the same name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvferry.tenants import add_tenant
from kvferry.vllm.settings import unsupported_error

if TYPE_CHECKING:
    from kvferry.vllm.step_work import Prompt

# Changes whenever the content of a page or the hashed data change.
FORM = "kvferry.vllm/3"

# Hex digits of a hash that controllers and directories can store.
_HASH_DIGITS = 16

# Names of dtypes in torch and in keys.
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

    # The name of the model for people. The identity of the model and its weights is in the context of a prompt.
    model: str
    ranks: int
    rank: int
    # As keys name it.
    dtype: str
    # Everything that determines the meaning of the bytes of a block. Engines with different layouts have no common
    # keys.
    layout: str
    # Tokens of a chunk.
    chunk: int

    def chunk_keys(self, prompt: Prompt) -> list[str]:
        """Return the keys of the chunks of a prompt; the last chunk may be partial.

        A hash covers everything that the KV of a chunk depends on: the tokens up to its end, the inputs that replace
        some of them, and the context.
        """
        state = hashlib.sha256("\0".join((FORM, self.layout, prompt.context)).encode()).digest()
        tokens = np.asarray(prompt.tokens, "<u4")
        keys = []
        for begin in range(0, len(tokens), self.chunk):
            chunk = tokens[begin : begin + self.chunk]
            spans = _encode_spans(prompt, begin, begin + len(chunk))
            state = hashlib.sha256(state + len(chunk).to_bytes(4, "little") + chunk.tobytes() + spans).digest()
            keys.append(add_tenant(self._format_key(state), prompt.tenant))
        return keys

    def _format_key(self, state: bytes) -> str:
        """Return a key in LMCache's format, without a tenant: model@ranks@rank@hash@dtype@tag.

        Controllers and directories store 64 bits of a hash, for which an attacker can find two prompts. So only these
        are the hash, and the tag has the other 192 bits: agents compare both, and a chunk of another prompt is a miss.
        """
        digits = state.hex()
        return (
            f"{self.model}@{self.ranks}@{self.rank}@{digits[:_HASH_DIGITS]}@{self.dtype}@hash%{digits[_HASH_DIGITS:]}"
        )


def _encode_spans(prompt: Prompt, begin: int, end: int) -> bytes:
    """Encode the inputs that replace tokens of a chunk; empty if there are none."""
    found = [
        [span.begin - begin, min(span.end, end) - begin, span.content]
        for span in prompt.spans
        if span.begin < end and span.end > begin
    ]
    return json.dumps(found).encode() if found else b""


def dtype_name(torch_name: str) -> str:
    """Return the name of a torch dtype in keys."""
    name = torch_name.removeprefix("torch.")
    if name not in _DTYPES:
        raise unsupported_error("kv_cache_dtype", torch_name, f"one of {', '.join(_DTYPES)}", "set --kv-cache-dtype")
    return _DTYPES[name]

"""Lets msgspec read and write the messages of vLLM's NIXL push connector for a test of kvferry.

The classes are written down from what vLLM 0.32.0 sends (connector version 14): their fields, types and defaults.

usage: oracle.py    answer requests, one a line, until the input ends:
           take KIND HEX     the message, read as the reference reads it and written again; or "error WHY"
           draw KIND N       a message of a kind; N decides which
           hash N            the JSON of factors and their SHA-256; N decides which
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import sys
from typing import Any

import msgspec

EDGES = (0, 1, 31, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
LETTERS = 'abcXYZ019-_.:/@% \t"\\\u00e9\u0436\u4e2d\U0001f600\x7f\x00'
REGISTRATION = b"PUSH_REG:"


@dataclasses.dataclass
class NixlAgentMetadata:
    """What a worker says of its memory."""

    engine_id: str
    agent_metadata: bytes
    kv_caches_base_addr: list[int]
    device_id: int
    num_blocks: int
    block_lens: list[int]
    block_strides: list[int]
    kv_cache_layout: str
    block_size: int
    ssm_sizes: tuple[int, int]
    attn_backend_name: str
    physical_blocks_per_logical_kv_block: int
    region_num_blocks: list[int] | None = None
    region_group_ids: list[int] | None = None
    region_names: list[str] | None = None
    region_mem_types: list[str] | None = None
    dcp_size: int = 1
    pcp_size: int = 1
    ple_block_len: int | None = None
    region_members: list[list[str]] = dataclasses.field(default_factory=list)
    packed_member_layouts: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class NixlHandshakePayload:
    """What the side channel answers."""

    compatibility_hash: str
    agent_metadata_bytes: bytes


class Draw:
    """Draws messages."""

    def __init__(self, seed: str) -> None:
        """Draw what a seed stands for."""
        self._rng = random.Random(seed)

    def number(self, most: int = 2**64 - 1, least: int = 0) -> int:
        """Draw a number, often one at an edge."""
        edges = [v for v in EDGES if least <= v <= most]
        return self._rng.choice(edges) if self._rng.random() < 0.5 else self._rng.randint(least, most)

    def text(self, letters: str = LETTERS, least: int = 0) -> str:
        """Draw a text."""
        return "".join(self._rng.choice(letters) for _ in range(self._rng.randint(least, 40)))

    def request(self) -> str:
        """Draw a name that a request can have."""
        return "r" + self.text("abc:-\u00e9")

    def numbers(self) -> list[int]:
        """Draw a list of numbers."""
        return [self.number() for _ in range(self._rng.randint(0, 40))]

    def texts(self) -> list[str]:
        """Draw a list of texts."""
        return [self.text() for _ in range(self._rng.randint(0, 20))]

    def chance(self) -> bool:
        """Draw yes or no."""
        return self._rng.random() < 0.5

    def metadata(self) -> NixlAgentMetadata:
        """Draw what a worker says."""
        groups = [self.number(2**63 - 1) * self._rng.choice((1, -1)) for _ in range(self._rng.randint(0, 40))]
        return NixlAgentMetadata(
            self.text(),
            self._rng.randbytes(self._rng.randint(0, 400)),
            self.numbers(),
            self.number(),
            self.number(),
            self.numbers(),
            self.numbers(),
            self._rng.choice(("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")),
            self.number(),
            (self.number(), self.number()),
            self.text(),
            self.number(),
            self.numbers() if self.chance() else None,
            groups if self.chance() else None,
            self.texts() if self.chance() else None,
            self.texts() if self.chance() else None,
            self.number(),
            self.number(),
            self.number() if self.chance() else None,
            [self.texts() for _ in range(self._rng.randint(0, 6))],
            {self.text(): (self.number(), self.number()) for _ in range(self._rng.randint(0, 8))},
        )

    def registration(self) -> dict[str, Any]:
        """Draw a registration."""
        return {
            "request_id": self.request(),
            "decode_engine_id": self.text(),
            "decode_host": self.text(),
            "decode_port": self.number(2**16 - 1),
            "decode_tp_size": self.number(2**32 - 1, 1),
            "local_block_ids": [self.numbers() for _ in range(self._rng.randint(0, 6))],
            "remote_engine_id": self.text(),
            "remote_host": self.text(),
            "remote_port": self.number(2**16 - 1),
            "remote_tp_size": self.number(2**32 - 1),
            "remote_pp_size": self.number(2**32 - 1, 1),
        }

    def message(self, kind: str) -> bytes:  # noqa: PLR0911 - One for each kind.
        """Draw a message of a kind."""
        match kind:
            case "NixlAgentMetadata":
                return msgspec.msgpack.encode(self.metadata())
            case "NixlHandshakePayload":
                return msgspec.msgpack.encode(
                    NixlHandshakePayload(self.text(), msgspec.msgpack.encode(self.metadata()))
                )
            case "PUSH_REG":
                return REGISTRATION + msgspec.msgpack.encode(self.registration())
            case "GET_META":
                return msgspec.msgpack.encode((b"get_meta_msg", self.number(2**32 - 1), self.number(2**32 - 1)))
            case "clock":
                return msgspec.msgpack.encode(self._rng.uniform(-1e12, 1e12))
            case "completion":
                return f"{self.request()}:{self.number(2**32 - 1, 1)}".encode()
            case "heartbeat":
                return ("HB:" + ",".join(self.request() for _ in range(self._rng.randint(0, 20)))).encode()
        raise ValueError(f"{kind!r} is no kind")

    def factors(self) -> dict[str, Any]:
        """Draw what a compatibility hash is made of."""
        speculative = {
            "method": self.text(),
            "model": self.text(),
            "revision": self.text(least=1) if self.chance() else None,
            "code_revision": self.text(least=1) if self.chance() else None,
            "parallel_drafting": self.chance(),
            "kv_cache_dtype": self.text(),
            "auxiliary_layer_ids": [self.number(200) for _ in range(self._rng.randint(0, 4))]
            if self.chance()
            else None,
        }
        return {
            "vllm_version": self.text(),
            "nixl_connector_version": self.number(1000),
            "model": self.text(),
            "dtype": self.text(),
            "num_kv_heads": self.number(2**31),
            "head_size": self.number(2**31),
            "num_hidden_layers": self.number(2**31),
            "attn_backend_name": self.text(),
            "cache_dtype": self.text(),
            "is_hma_enabled": self.chance(),
            "speculative_config": speculative if self.chance() else None,
            "transfer_mode": self._rng.choice(("push", "pull")),
        }


def take(kind: str, message: bytes) -> bytes:
    """Read a message as the reference does, and write it again."""
    match kind:
        case "NixlAgentMetadata":
            return msgspec.msgpack.encode(msgspec.msgpack.decode(message, type=NixlAgentMetadata))
        case "NixlHandshakePayload":
            return msgspec.msgpack.encode(msgspec.msgpack.decode(message, type=NixlHandshakePayload))
        case "PUSH_REG":
            if not message.startswith(REGISTRATION):
                raise ValueError("no registration")
            return REGISTRATION + msgspec.msgpack.encode(msgspec.msgpack.decode(message[len(REGISTRATION) :]))
        case "GET_META" | "clock":
            return msgspec.msgpack.encode(msgspec.msgpack.decode(message))
        case "completion":
            request, ranks = message.decode().rsplit(":", 1)
            return f"{request}:{int(ranks)}".encode()
        case "heartbeat":
            if not message.startswith(b"HB:"):
                raise ValueError("no heartbeat")
            return ("HB:" + ",".join(name for name in message.decode()[3:].split(",") if name)).encode()
    raise ValueError(f"{kind!r} is no kind")


def answer(line: str) -> str:
    """Answer one request."""
    match line.split():
        case ["take", kind, *rest]:
            try:
                return take(kind, bytes.fromhex("".join(rest))).hex()
            except (msgspec.MsgspecError, ValueError, OverflowError) as why:
                return "error " + str(why).replace("\n", " ")
        case ["draw", kind, number]:
            return Draw(f"{kind} {number}").message(kind).hex()
        case ["hash", number]:
            factors = json.dumps(Draw(f"hash {number}").factors(), sort_keys=True)
            return hashlib.sha256(factors.encode()).hexdigest() + " " + factors
    raise ValueError(f"{line!r} is no request")


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        print(answer(line), flush=True)


if __name__ == "__main__":
    main()

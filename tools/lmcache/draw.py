"""Draws messages that a peer may send."""

from __future__ import annotations

import enum
import types
import typing
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

UINT32 = 2**32 - 1

# Where encodings change their width.
EDGES = (0, 1, 31, 32, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**16, 2**31, UINT32, 2**32, 2**63 - 1, 2**63, 2**64 - 1)

DTYPES = (
    "half",
    "bfloat16",
    "float",
    "double",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "bool",
    "fp8_e4m3fn",
    "fp8_e4m3fnuz",
    "fp8_e5m2",
    "fp8_e5m2fnuz",
)

LETTERS = 'abcXYZ019-_.:/@% \t"\\\u00e9\u0436\u4e2d\U0001f600\x7f\x00'


class Draw:
    """Draws values, of lists and texts of up to most elements."""

    def __init__(self, rng: random.Random, most: int) -> None:
        self._rng = rng
        self._most = most

    def message(self, of: type[msgspec.Struct]) -> msgspec.Struct:
        """Draw a message of a class: each field by its name, or by its type, and then those that belong together."""
        hints = typing.get_type_hints(of)
        values = {f.name: self._field(of.__name__, f.name, hints[f.name]) for f in msgspec.structs.fields(of)}
        for field, few in _FEW.get(of.__name__, ()):
            del values[field][few:]
        if (together := _TOGETHER.get(of.__name__)) is not None:
            together(self, values)
        return of(**values)

    def number(self, least: int, most: int) -> int:
        """Draw a number, often one at an edge."""
        edges = [v for edge in EDGES for v in (edge, -edge, -edge - 1) if least <= v <= most]
        return self._rng.choice(edges) if self._rng.random() < 0.5 else self._rng.randint(least, most)

    def text(self, least: int = 0) -> str:
        """Draw a text."""
        return "".join(self._rng.choice(LETTERS) for _ in range(self._rng.randint(least, max(least, self._most))))

    def uuid(self) -> str:
        """Draw the name of a buffer."""
        digits = f"{self._rng.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def hash(self) -> int:
        """Draw a chunk's hash: signed, or 64 bits of a longer one."""
        return self.number(-(2**63), 2**64 - 1)

    def list_of(self, draw: Callable[[], Any], count: int | None = None) -> list[Any]:
        """Draw a list."""
        return [draw() for _ in range(self._rng.randint(0, self._most) if count is None else count)]

    def _field(self, of: str, name: str, hint: Any) -> Any:
        by_name = _BY_FIELD.get(f"{of}.{name}", _BY_NAME.get(name))
        return self._typed(hint) if by_name is None else by_name(self)

    def _typed(self, hint: Any) -> Any:  # noqa: PLR0911 - One for each type.
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            inner = self._rng.choice(args)
            # What is nil and what is empty mean the same to kvferry, which writes nil.
            return None if inner is type(None) else self.text(1) if inner is str else self._typed(inner)
        if origin is list:
            return self.list_of(lambda: self._typed(args[0]))
        if origin is tuple:
            return tuple(self._typed(a) for a in args)
        if hint is bool:
            return self._rng.random() < 0.5
        if hint is int:
            return self.number(-(2**63), 2**63 - 1)
        if hint is float:
            return self._rng.choice((0.0, 0.1, 1.0, 60.0, -1.5, self._rng.random(), self._rng.uniform(0, 1e12)))
        if hint is str:
            return self.text()
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._rng.choice(list(hint))
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.message(hint)
        raise TypeError(f"nothing is drawn for {hint!r}; name the field in _BY_NAME")

    def holder(self) -> tuple[str, str, int, str]:
        """Draw who has chunks."""
        return (self.text(1), self.text(), self.number(1, UINT32), self.text())

    def layout(self) -> list[tuple[str, str, int, str]]:
        """Draw an answer to a lookup: a miss, or one holder at least."""
        if self._rng.random() < 0.3:
            return [("", "", 0, "")]
        return self.list_of(self.holder, self._rng.randint(1, max(1, min(self._most, 20))))

    def chance(self) -> bool:
        """Draw yes or no."""
        return self._rng.random() < 0.5


# Fields that not every value of their type suits, by their names.
_BY_NAME: dict[str, Callable[[Draw], Any]] = {
    "worker_id": lambda d: d.number(0, UINT32),
    "port": lambda d: d.number(0, 2**16 - 1),
    "key": lambda d: d.hash(),
    "hashes": lambda d: d.list_of(d.hash),
    "seq_num": lambda d: d.number(0, 2**64 - 1),
    "total_keys": lambda d: d.number(0, 2**64 - 1),
    "actual_total_keys": lambda d: d.number(0, 2**64 - 1),
    "batch_count": lambda d: d.number(0, UINT32),
    "batch_id": lambda d: d.number(0, UINT32),
    "num_hit_chunks": lambda d: d.number(0, UINT32),
    "num_read_chunks": lambda d: d.number(0, UINT32),
    "layout_info": Draw.layout,
    "extra_config": lambda d: {"heartbeat_url": d.text(1)} if d.chance() else {},
    "args": lambda _: None,
    "fmt": lambda d: d.number(0, 8),
    "shape": lambda d: d.list_of(lambda: d.number(0, UINT32), d.number(0, 4)),
    "dtype": lambda d: DTYPES[d.number(0, len(DTYPES) - 1)],
    "last_chunk_toks": lambda d: d.number(0, UINT32),
    "total_chunks": lambda d: d.number(0, UINT32),
    "pull_id": lambda d: d.uuid().replace("-", ""),
    "uuid": Draw.uuid,
    "buffer_ptr": lambda d: d.number(0, 2**64 - 1),
    "buffer_size": lambda d: d.number(0, 2**64 - 1),
    "page_size": lambda d: d.number(0, 2**64 - 1),
    "new_position": lambda d: (d.text(), d.text()),
}
_BY_FIELD: dict[str, Callable[[Draw], Any]] = {"FullSyncBatchMsg.keys": lambda d: d.list_of(d.hash)}

# Lists of which a message has no more than this.
_FEW = {"HeartbeatRetMsg": (("commands", 16),)}


def _beside(draw: Draw, values: dict[str, Any], field: str, element: Callable[[], Any], *others: str) -> None:
    """Make lists as long as the one in field, which is drawn."""
    values[field] = draw.list_of(element)
    for other in others:
        make = draw.uuid if other.endswith("uuids") else lambda: draw.number(-(2**63), 2**63 - 1)
        values[other] = draw.list_of(make, len(values[field]))


def _get(draw: Draw, values: dict[str, Any]) -> None:
    _beside(draw, values, "keys", draw.text, "mem_indexes")
    if "buffer_uuids" in values:
        if values["pull_mode"] and draw.chance():
            values["mem_indexes"] = []
        values["buffer_uuids"] = draw.list_of(draw.uuid, len(values["mem_indexes"]))


def _got(draw: Draw, values: dict[str, Any]) -> None:
    values["remote_buffer_uuids"], values["remote_mem_indexes"] = [], []
    if draw.chance():
        _beside(draw, values, "remote_buffer_uuids", draw.uuid, "remote_mem_indexes")
        values["num_hit_chunks"] = len(values["remote_mem_indexes"])


# Fields that belong together, by the class that has them.
_TOGETHER: dict[str, Callable[[Draw, dict[str, Any]], None]] = {
    "AscendAllocResponse": lambda d, v: _beside(d, v, "remote_buffer_uuids", d.uuid, "remote_indexes"),
    "PullReadyNotif": lambda d, v: _beside(d, v, "keys", d.text, "sender_buffer_uuids", "sender_mem_indexes"),
    "CacheQueryResponse": lambda d, v: _beside(d, v, "cached_keys", d.text, "cached_indexes"),
    "BatchedLookupAndGetMsg": _get,
    "AscendBatchedLookupAndGetMsg": _get,
    "AscendBatchedLookupAndGetRetMsg": _got,
    "BatchedLookupAndPutMsg": lambda d, v: _beside(d, v, "keys", d.text, "offsets", "mem_indexes"),
    "AscendBatchedLookupAndPutMsg": lambda d, v: _beside(
        d, v, "keys", d.text, "offsets", "mem_indexes", "buffer_uuids"
    ),
}

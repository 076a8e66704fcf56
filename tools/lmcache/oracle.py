"""Lets LMCache's classes read and write messages for a test of kvferry.

usage: oracle.py serve    answer requests, one a line, until the input ends:
           take DIALECT HEX       the message, as the class that it is reads and writes it again; or "error WHY"
           draw DIALECT CLASS N   a message of a class; N decides which
           json DIALECT CLASS N   the same, and then as the JSON that LMCache's controller reads it from
           classes                all dialects and their classes
       oracle.py golden   print what protocol/testdata/lmcache.txt holds
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import sys
from typing import TYPE_CHECKING

import msgspec

from classes import Dialect, dialects
from draw import Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long drawn lists and texts are at most.
LIVE, GOLDEN = 40, 5

# How many messages of each class are kept.
KEPT = 3


def drawn(dialect: Dialect, name: str, number: int, most: int) -> msgspec.Struct:
    """Give the message of a class that a number stands for."""
    return Draw(random.Random(f"{dialect.name} {name} {number}"), most).message(dialect.named(name))


def as_json(message: msgspec.Struct) -> str:
    """Write a message as LMCache's controller reads it from JSON, in one line."""
    return json.dumps(msgspec.to_builtins(message))


def from_json(dialect: Dialect, text: str) -> msgspec.Struct:
    """Read a message from JSON as LMCache's controller does: a generic object first."""
    message = msgspec.convert(json.loads(text), type=dialect.union)
    if not isinstance(message, msgspec.Struct):
        raise TypeError(f"{message!r} is no message")
    return message


def answer(known: dict[str, Dialect], line: str) -> str:
    """Answer one request."""
    match line.split():
        case ["take", name, *rest]:
            try:
                return msgspec.msgpack.encode(known[name].decode(bytes.fromhex("".join(rest)))).hex()
            except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as why:
                return "error " + str(why).replace("\n", " ")
        case ["draw", name, cls, number]:
            return msgspec.msgpack.encode(drawn(known[name], cls, int(number), LIVE)).hex()
        case ["json", name, cls, number]:
            message = drawn(known[name], cls, int(number), LIVE)
            return msgspec.msgpack.encode(message).hex() + " " + as_json(message)
        case ["classes"]:
            return " ".join(f"{d.name}/{c.__name__}" for d in known.values() for c in d.classes)
    raise ValueError(f"{line!r} is no request")


def golden() -> Iterator[str]:
    """Give the lines of the kept file."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("lmcache", "msgspec"))
    yield f"# Messages as the classes of LMCache write them ({versions}). tools/lmcache/oracle.py golden"
    yield "# prints this file, and make lmcache-oracle compares it. A line: the dialect, the class, the bytes, and"
    yield "# of what may be JSON that, too."
    for dialect in dialects().values():
        for cls in dialect.classes:
            for number in range(KEPT):
                message = drawn(dialect, cls.__name__, number, GOLDEN)
                line = f"{dialect.name} {cls.__name__} {msgspec.msgpack.encode(message).hex()}"
                yield line + (" " + as_json(message) if dialect.name == "controller" else "")


def main() -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["serve"]:
            known = dialects()
            for line in sys.stdin:
                print(answer(known, line), flush=True)
        case ["golden"]:
            for line in golden():
                print(line)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

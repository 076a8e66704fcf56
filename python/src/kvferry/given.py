"""What an operator gives to a plug-in: a mapping, read as the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kvferry.attachment import socket_path
from kvferry.errors import InvalidError, wrong

# The largest number that is taken.
_MOST = 1 << 20


def read(kind: type[Any], given: Mapping[str, Any], within: str, op: str) -> Any:
    """Make one of that class. What is unknown or of no use is refused by its name, within what has it.

    A field's default says what is taken: a text, true or false, or a number above 0. The field socket must come to
    something: where nothing is given it is what KVFERRY_SOCKET says.
    """
    known = {field.name: field for field in fields(kind)}
    value: Any
    for name, value in given.items():
        if name not in known:
            raise wrong(op, f"{within}.{name}", repr(value)[:60], f"one of {', '.join(known)}", "take it out")
        default = known[name].default
        kinds = (int, float) if isinstance(default, float) else (type(default),)
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, kinds):
            wanted = {str: "a text", bool: "true or false"}.get(type(default), "a number")
            raise wrong(op, f"{within}.{name}", repr(value)[:60], wanted, "give one")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 < value <= _MOST:
            raise wrong(op, f"{within}.{name}", repr(value), f"above 0, at most {_MOST}", "give such a number")
    try:
        path = socket_path(given.get("socket") or None)
    except InvalidError as error:
        why = replace(error.why, field=f"{within}.socket", ours=error.ours or "a path")
        raise InvalidError(op, error.code, why) from None
    return kind(**{**given, "socket": path})

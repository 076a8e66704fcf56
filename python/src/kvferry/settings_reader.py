"""Reads the settings of a plug-in: a mapping becomes an instance of a dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kvferry.attachment import socket_path
from kvferry.errors import InvalidError, invalid_error

# The largest accepted number.
_MAX_NUMBER = 1 << 20


def read_settings(kind: type[Any], values: Mapping[str, Any], section: str, op: str) -> Any:
    """Return an instance of a dataclass with the given values.

    The default of a field determines the accepted values: a text, true or false, or a number above 0. The field socket
    must not be empty; if it is not given, KVFERRY_SOCKET is used.

    Args:
        kind: the dataclass.
        values: the settings by name.
        section: where the settings are in the configuration, for errors.
        op: the operation, for errors.

    Raises:
        InvalidError: a setting is unknown or has a wrong value.
    """
    known_fields = {field.name: field for field in fields(kind)}
    value: Any
    for name, value in values.items():
        if name not in known_fields:
            raise invalid_error(
                op, f"{section}.{name}", repr(value)[:60], f"one of {', '.join(known_fields)}", "remove it"
            )
        default = known_fields[name].default
        kinds = (int, float) if isinstance(default, float) else (type(default),)
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, kinds):
            expected = {str: "a text", bool: "true or false"}.get(type(default), "a number")
            raise invalid_error(op, f"{section}.{name}", repr(value)[:60], expected, "give one")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 < value <= _MAX_NUMBER:
            raise invalid_error(
                op, f"{section}.{name}", repr(value), f"above 0, at most {_MAX_NUMBER}", "give a number in this range"
            )
    try:
        path = socket_path(values.get("socket") or None)
    except InvalidError as error:
        details = replace(error.details, field=f"{section}.socket", ours=error.ours or "a path")
        raise InvalidError(op, error.code, details) from None
    return kind(**{**values, "socket": path})

"""Runs files of LMCache's wheel, each under its own name, where what they import beside each other is a stand-in."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Anything(type):
    """A class that has every attribute, and whose instances are classes of the same kind: all that a file needs."""

    def __getattr__(cls, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __call__(cls, *_args: object, **_kwargs: object) -> _Anything:
        return cls


def _anything(name: str) -> _Anything:
    return _Anything(name, (), {})


class _StandIn(ModuleType):
    __path__ = []  # noqa: RUF012 - It makes a module a package.

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the real files in the wheel, and stand-ins for what they import."""

    def __init__(self, wheel: pathlib.Path, real: Sequence[str], stood_in_for: Sequence[str]) -> None:
        self._wheel = wheel
        self._real = real
        self._stood_in_for = stood_in_for

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module by its name."""
        if fullname in self._real:
            path = self._wheel.joinpath(*fullname.split("."))
            file, inside = path.with_suffix(".py"), None
            if path.is_dir():
                file, inside = path / "__init__.py", [str(path)]
            return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=inside)
        if fullname.split(".", maxsplit=1)[0] in self._stood_in_for:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make a stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


def load(real: Sequence[str], stood_in_for: Sequence[str]) -> dict[str, Any]:
    """Run the real files, and give their modules by the last part of their names.

    Everything else of the packages that are stood in for has every attribute, and none of their code is run.
    """
    spec = importlib.util.find_spec("lmcache")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("lmcache is not installed; run make lmcache-oracle")
    finder = _Finder(pathlib.Path(spec.submodule_search_locations[0]).parent, real, stood_in_for)
    sys.meta_path.insert(0, finder)
    try:
        return {name.rsplit(".", maxsplit=1)[-1]: importlib.import_module(name) for name in real}
    finally:
        sys.meta_path.remove(finder)

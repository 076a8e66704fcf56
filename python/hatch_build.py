"""A wheel that carries the command is of one kind of machine; one without it runs anywhere (make wheel)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):  # type: ignore[type-arg]
    """Names the kind of machine. auditwheel says later of which C library on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Look whether the command is there."""
        del version
        if (Path(self.root) / "src/kvferry/bin/kvferry").exists():
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-linux_{os.uname().machine}"

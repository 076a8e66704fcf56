"""Tags a wheel with the command for one kind of machine; a wheel without it runs anywhere (make wheel)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):  # type: ignore[type-arg]
    """Sets the machine in the tag: KVFERRY_WHEEL_MACHINE, or this one. auditwheel adds the C library later."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the tag if the command is present."""
        del version
        if (Path(self.root) / "src/kvferry/bin/kvferry").exists():
            build_data["pure_python"] = False
            machine = os.environ.get("KVFERRY_WHEEL_MACHINE", os.uname().machine)
            build_data["tag"] = f"py3-none-linux_{machine}"

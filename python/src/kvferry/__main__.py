"""The command kvferry of the wheel: python -m kvferry, or kvferry."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from kvferry.agent import bundled_binary


def main() -> NoReturn:
    """Replace this process by the command, with the same arguments."""
    binary = bundled_binary()
    if binary is None:
        print(
            "kvferry: this installation has no command; install a wheel for this machine (make wheel), or "
            "run bin/kvferry of make build",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.stdout.flush()
    os.execv(binary, [binary, *sys.argv[1:]])  # noqa: S606 (No shell is wanted.)


if __name__ == "__main__":
    main()

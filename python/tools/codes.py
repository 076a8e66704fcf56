"""Writes kvferry/codes.py from the Go sources, so that numbers and remedies are said once.

usage: codes.py [--check]

With --check nothing is written; it fails where what stands there is not what would be written.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
TARGET = ROOT / "python" / "src" / "kvferry" / "codes.py"

HEAD = '''"""How things end: the numbers are those of the wire, and never change (docs/errors.md)."""

# Written by python/tools/codes.py from effects/code.go and effects/why.go.

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """How a call ended. The name in lower case is the one of logs, JSON and metrics."""
'''

FOOT = """
    @classmethod
    def of(cls, number: int) -> Code:
        \"\"\"Return the code of a number of the wire; what is not known here is REFUSED.\"\"\"
        try:
            return cls(number)
        except ValueError:
            return cls.REFUSED

    @property
    def word(self) -> str:
        \"\"\"Its name in logs, JSON and metrics.\"\"\"
        return self.name.lower()
"""


def read(name: str) -> str:
    """Read a Go source."""
    return (ROOT / "effects" / name).read_text(encoding="utf-8")


def codes(text: str) -> list[tuple[str, str, int, str]]:
    """Find all codes: the Go name, the stable name, the number and what to do."""
    table = re.search(r"codeNames = \[CodeCount\]string\{(.*?)\n\}", text, re.DOTALL)
    if table is None:
        raise SystemExit("effects/code.go has no codeNames")
    names = re.findall(r'"(\w+)"', table[1])
    found = re.findall(r"((?:\t// .*\n)+)\t(\w+) Code = (\d+)\n", text)
    if [int(number) for _, _, number in found] != list(range(len(names))):
        raise SystemExit("the numbers of effects/code.go do not go up one by one, or not all have a name")
    made = []
    for comment, go, number in found:
        words = " ".join(line.strip().removeprefix("// ") for line in comment.splitlines() if line)
        said = words.removeprefix(go + ": ").removesuffix(".")
        made.append((go, names[int(number)], int(number), said[0].upper() + said[1:] + "."))
    return made


def remedies(text: str) -> dict[str, str]:
    """Find what helps with a code, by its Go name."""
    table = re.search(r"remedies = \[CodeCount\]string\{(.*?)\n\}", text, re.DOTALL)
    if table is None:
        raise SystemExit("effects/why.go has no remedies")
    return dict(re.findall(r'(\w+):\s+"(.*)",', table[1]))


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """Break a comment into lines."""
    lines, line = [], indent + "#"
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = indent + "#"
        line += " " + word
    return [*lines, line]


def written() -> str:
    """Make the whole module."""
    found, help_of = codes(read("code.go")), remedies(read("why.go"))
    if unknown := help_of.keys() - {go for go, _, _, _ in found}:
        raise SystemExit(f"effects/why.go has remedies of no code: {sorted(unknown)}")
    lines = [HEAD]
    for _, name, number, said in found:
        lines += [*wrapped(said, 120, "    "), f"    {name.upper()} = {number}"]
    lines += [FOOT, "", "# What helps where nothing more is known than the code.", "REMEDIES = {"]
    for go, name, _, _ in found:
        if go in help_of:
            row = f'    Code.{name.upper()}: "{help_of[go]}",'
            if len(row) > 120:
                row = row.replace(': "', ': (\n        "')[:-1] + "\n    ),"
            lines.append(row)
    return "\n".join([*lines, "}", ""])


def main(arguments: list[str]) -> int:
    """Write it, or compare."""
    text = written()
    if arguments != ["--check"]:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        print("codes.py is not what the Go sources say; run python/tools/codes.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

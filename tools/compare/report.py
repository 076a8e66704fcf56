"""What was measured, as tables in Markdown and as a plot."""

from __future__ import annotations

import pathlib
import re
import statistics
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "compare"  # The same figures make the same file.

from matplotlib import pyplot  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Found = dict[str, list[dict[str, Any]]]

NAMES = {
    "copy": "Go's copy, two goroutines", "kvferry-shm": "kvferry, shm", "nixl": "NIXL, UCX's choice",
    "tcp4": "four bare TCP streams", "kvferry-tcp": "kvferry, tcp", "nixl-tcp": "NIXL, tcp",
    "mooncake": "Mooncake, tcp", "trip": "one bare round trip over TCP (Go)",
    "libzmq-trip": "three round trips of libzmq",
}  # fmt: skip

# The same in a row that has more to say.
SHORT = {
    "copy": "Go's copy", "kvferry-shm": "shm", "nixl": "NIXL", "tcp4": "bare", "kvferry-tcp": "tcp",
    "nixl-tcp": "NIXL tcp", "mooncake": "Mooncake",
}  # fmt: skip

# Who is compared with whom over which sizes, and the aim, of shared/review/turn3/performance.md.
RATIOS = [
    ("kvferry-shm", "nixl", "2.5"), ("kvferry-shm", "copy", ""), ("kvferry-tcp", "nixl-tcp", "2"),
    ("kvferry-tcp", "mooncake", "1.5"), ("kvferry-tcp", "tcp4", "0.95"),
]  # fmt: skip


def sizes(found: Found) -> list[int]:
    """Give the sizes of chunks that were moved in bulk."""
    return sorted({int(name.split()[2]) for name in found if name.startswith("bulk ")})


def human(size: int) -> str:
    """Write a size."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def middle(found: Found, name: str, figure: str, scale: float = 1) -> float | None:
    """Give the median of a figure over the rounds."""
    return statistics.median(x[figure] for x in found[name]) * scale if name in found else None


def figure(value: float | None) -> str:
    """Write a figure with three digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def ratios(found: Found, one: str, other: str) -> list[str]:
    """Give the ratio of two rates for each size: the median of the rounds, lowest and highest."""
    cells = []
    for size in sizes(found):
        a, b = found.get(f"bulk {one} {size}"), found.get(f"bulk {other} {size}")
        if not a or not b:
            cells.append("")
            continue
        all_of = [x["gbps"] / y["gbps"] for x, y in zip(a, b, strict=True)]
        cells.append(f"{statistics.median(all_of):.2f} ({min(all_of):.2f}\u2013{max(all_of):.2f})")
    return cells


def named(kind: str, poll: str) -> str:
    """Name a pair of ends."""
    return NAMES[kind] + (f", `poll.us: {poll}`" if int(poll) else "")


Row = tuple[int, int, list[str]]  # where among the names, the time to poll, and the cells


def ordered(rows: Iterable[Row]) -> list[list[str]]:
    """Put rows into the order of their names."""
    return [cells for *_, cells in sorted(rows)]


def put_rows(found: Found) -> Iterable[Row]:
    """Give a row for each way to put one chunk."""
    for name in found:
        match name.split():
            case ["small", kind, poll, "1000"]:
                times = 3 if kind == "libzmq-trip" else 1
                cells = [named(kind, poll)]
                for pause in ("1000", "0"):
                    of = f"small {kind} {poll} {pause}"
                    cells += [figure(middle(found, of, x, times)) for x in ("p50", "p99", "cpu_us")]
                yield list(NAMES).index(kind), int(poll), cells


def beside_rows(found: Found) -> Iterable[Row]:
    """Give a row for each way to put one chunk beside something else."""
    for name in found:
        match name.split():
            case ["beside", kind, poll, "bulk"]:
                cells = [named(kind, poll)]
                for load in ("bulk", "busy"):
                    cells += [figure(middle(found, f"beside {kind} {poll} {load}", x)) for x in ("p50", "p99", "p999")]
                yield list(NAMES).index(kind), int(poll), cells


def other_rows(found: Found, what: str, figures: Sequence[str]) -> Iterable[Row]:
    """Give a row for each measurement that begins so."""
    for name in found:
        match name.split():
            case [begins, kind, poll] if begins == what:
                yield list(NAMES).index(kind), int(poll), [named(kind, poll), *_cells(found, name, figures)]
            case [begins, poll] if begins == what:
                yield 0, int(poll), [f"`poll.us: {poll}`", *_cells(found, name, figures)]


def _cells(found: Found, name: str, figures: Sequence[str]) -> list[str]:
    return [figure(middle(found, name, x)) for x in figures]


def rates(found: Found, what: str) -> list[list[str]]:
    """Give a row for each way to move in bulk."""
    shown = sizes(found)
    return [
        [name, *(figure(middle(found, f"bulk {kind} {size}", what)) for size in shown)]
        for kind, name in NAMES.items()
        if any(f"bulk {kind} {size}" in found for size in shown)
    ]


def tables(found: Found) -> str:
    """Write all tables."""
    head = ["", *map(human, sizes(found))]
    compared = [[f"{SHORT[a]} / {SHORT[b]}", *ratios(found, a, b), aim] for a, b, aim in RATIOS]
    put_head = ["", "p50, spaced", "p99", "processors", "p50, together", "p99", "processors"]
    beside_head = ["", "p50, bulk", "p99", "p99.9", "p50, busy", "p99", "p99.9"]
    parts = [
        f"Medians of {max(len(x) for x in found.values())} rounds. Rates in GB/s of 64 MiB, by the size of a chunk:\n",
        table(head, rates(found, "gbps")),
        "![the same](pictures/compare.svg)\n",
        "Ratios within a round, the lowest and the highest of them, and the aim:\n",
        table([*head, "aim"], compared),
        "Processor seconds of both ends for a GiB:\n",
        table(head, rates(found, "cpu_s")),
        "One chunk of 4 KiB after the other, µs, with pauses of a millisecond (*spaced*) and without. NIXL's and\n"
        "Mooncake's initiators write; kvferry's target has an engine that waits for the chunk:\n",
        table(put_head, ordered(put_rows(found))),
        "The same, spaced, beside a pair of nodes that move 64 MiB after 64 MiB over shm (*bulk*), and beside a\n"
        "process that computes (*busy*), µs:\n",
        table(beside_head, ordered(beside_rows(found))),
        "Cores that both ends use while nothing is asked of them:\n",
        table(["", "cores"], ordered(other_rows(found, "idle", ["cores"]))),
        "The first chunk between two ends that have not met yet:\n",
        table(["", "ms"], ordered(other_rows(found, "first", ["ms"]))),
        "From Python, through an agent at each end: to reserve, put and get one chunk of 4 KiB, µs, and the processor\n"
        "time of the Python process for that and for both releases:\n",
        table(["", "p50", "p99", "processor"], ordered(other_rows(found, "python", ["p50", "p99", "cpu_us"]))),
    ]
    return "\n".join(parts)


def plot(found: Found, to: pathlib.Path) -> None:
    """Draw rates over sizes: on one host by memory, and over TCP."""
    drawn, panels = pyplot.subplots(1, 2, figsize=(11, 4.4), sharey=True)
    ways = [
        ("shared memory", ["copy", "kvferry-shm", "nixl"]),
        ("TCP, loopback", ["tcp4", "kvferry-tcp", "nixl-tcp", "mooncake"]),
    ]
    colours = {"kvferry": "#1b6ca8", "nixl": "#27864a", "mooncake": "#c0392b"}
    for panel, (title, kinds) in zip(panels, ways, strict=True):
        for kind in kinds:
            points = [(size, middle(found, f"bulk {kind} {size}", "gbps")) for size in sizes(found)]
            xs, ys = zip(*[(x, y) for x, y in points if y is not None], strict=True)
            colour = colours.get(kind.split("-")[0])
            style = "-" if colour else "--"
            panel.plot(xs, ys, style, marker="o", label=NAMES[kind], color=colour or "#777777")
        panel.set_title(title)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes(found), [human(size) for size in sizes(found)])
        panel.set_xlabel("chunk")
        panel.grid(visible=True, color="#dddddd")
        panel.legend(fontsize=8)
    panels[0].set_ylabel("GB/s, 64 MiB a move")
    panels[0].set_ylim(bottom=0)
    drawn.tight_layout()
    drawn.savefig(to, format="svg", metadata={"Date": None})


def write(docs: pathlib.Path, text: str, found: Found) -> None:
    """Put tables into benchmarks.md, between their marks, and the plot beside it."""
    page = docs / "benchmarks.md"
    begin, end = "<!-- generated by make compare -->\n", "<!-- end -->"
    whole = page.read_text()
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(whole):
        raise SystemExit(f"{page} has no place for the tables: {begin.strip()} … {end}")
    page.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", whole, count=1))
    plot(found, docs / "pictures" / "compare.svg")

"""The table of ratios, as Markdown, and a plot of it, as SVG made by hand."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from bench_targets import Target

BAR = 16
WIDTH = 860
LABELS = 330


def median(values: Sequence[float] | None) -> float | None:
    return statistics.median(values) if values else None


def shown(value: float | None, digits: int = 2) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{digits}f}"


def table(targets: Sequence[Target]) -> str:
    """One row for each workload, then the figures that were taken once."""
    ours, others = targets[0], targets[1:]
    head = ["", *(f"{t.name} msg/s" for t in targets), *("ratio" for _ in others)]
    head += [*(f"{t.name} CPU s/M" for t in targets), *("CPU ratio" for _ in others)]
    lines = [_row(head), _row(["---", *("---:" for _ in head[1:])])]
    for workload in ours.rates:
        rates = [median(t.rates.get(workload)) for t in targets]
        cpu = [median(t.cpu.get(workload)) for t in targets]
        cells = [workload, *(shown(rate, 0) for rate in rates)]
        cells += [shown(_ratio(rates[0], rate)) for rate in rates[1:]]
        cells += [shown(spent) for spent in cpu]
        cells += [shown(_ratio(cpu[0], spent)) for spent in cpu[1:]]
        lines.append(_row(cells))
    facts = [_row(["", *(t.name for t in targets)]), _row(["---", *("---:" for _ in targets)])]
    names = list(dict.fromkeys(name for t in targets for name in t.facts))
    facts += [_row([name, *(shown(t.facts.get(name)) for t in targets)]) for name in names]
    return "\n".join([*lines, "", *facts])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def machine(round_trip: float) -> str:
    memory = psutil.virtual_memory().total / 2**30
    load = ", ".join(f"{value:.1f}" for value in psutil.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {psutil.cpu_count()} CPUs, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}; load "
        f"averages at the end {load}; one byte over loopback and back {round_trip:.0f} µs."
    )


def plot(targets: Sequence[Target], title: str) -> str:
    """Bars of msg/s for each workload, ours as a multiple of the first peer where there is one."""
    rows = [(name, [median(t.rates.get(name)) for t in targets]) for name in targets[0].rates]
    colours = ("#2563eb", "#9ca3af", "#d97706")
    height = 60 + len(rows) * (BAR * len(targets) + 14)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="15">{title}</text>',
    ]
    for number, target in enumerate(targets):
        x = LABELS + 150 * number
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{colours[number]}"/>')
        parts.append(f'<text x="{x + 18}" y="41">{target.name}</text>')
    y = 56
    for name, rates in rows:
        most = max(rate or 0.0 for rate in rates) or 1.0
        parts.append(f'<text x="{LABELS - 8}" y="{y + BAR}" text-anchor="end">{name}</text>')
        for number, rate in enumerate(rates):
            length = (WIDTH - LABELS - 150) * (rate or 0.0) / most
            text = shown(rate, 0)
            if number == 0 and len(rates) > 1 and rates[1] and rate:
                text += f"  ({rate / rates[1]:.1f} ×)"
            parts.append(
                f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 3}" '
                f'fill="{colours[number]}"/>'
                f'<text x="{LABELS + length + 6:.1f}" y="{y + 11}">{text}</text>'
            )
            y += BAR
        y += 14
    return "\n".join([*parts, "</svg>", ""])


def write(directory: Path, generator: str, targets: Sequence[Target], round_trip: float) -> Path:
    """Write ``broker-<generator>.md`` and ``.svg``; the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / f"broker-{generator}.md"
    picture = page.with_suffix(".svg")
    title = f"200-byte records, one broker, messages a second ({generator})"
    picture.write_text(plot(targets, title))
    peer = f" against {targets[1].name}" if len(targets) > 1 else ""
    page.write_text(
        f"# The broker{peer}\n\n"
        f"Written by `benchmarks/broker/bench.py`; what the rows mean, and how to read them, is in "
        f"[PERFORMANCE.md](../PERFORMANCE.md). 200-byte records, generator {generator}, both "
        f"brokers warm, medians of interleaved rounds in one run.\n\n{machine(round_trip)}\n\n"
        f"{table(targets)}\n\n![Messages a second]({picture.name})\n"
    )
    return page

"""What a broker is with much stored, after a kill, and with thousands of partitions.

    .venv/bin/python benchmarks/broker/size.py throughput      20 GB stored against an empty log
    … size.py restart                                          a start after kill -9 with 10 GB
    … size.py partitions                                       5,000 partitions on one broker
    … size.py throughput --gigabytes 0.5 --rounds 1            small, to try it
    … size.py restart --json                                   the figures as JSON
    … size.py throughput --generator PATH/rdkafka_performance  librdkafka's own load generator

Data lie in a temporary directory (in ``--directory``, or where the system has them), which is
removed; where there is not enough space, it says how much is needed, and ends with 2. Rounds are
interleaved, and what is shown is the median of each round's ratio: a machine with other work
changes from minute to minute. Method and figures: docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import size_partitions
import size_restart
import size_throughput
from bench_generators import Confluent, Generator, Rdkafka
from size_files import Facts

SPARE_BYTES = 1 << 30
"""What is left free on the disk for others."""


def generator_of(path: str | None) -> Generator:
    """librdkafka's load generator where there is one, else confluent-kafka."""
    found = path or shutil.which("rdkafka_performance")
    return Rdkafka(found) if found else Confluent()


def require_space(directory: Path, needed: int) -> None:
    """SystemExit (2) where the disk has less."""
    free = shutil.disk_usage(directory).free
    if free < needed + SPARE_BYTES:
        sys.stderr.write(
            f"this needs {(needed + SPARE_BYTES) / 1e9:.1f} GB in {directory}, and "
            f"{free / 1e9:.1f} GB are free: take another --directory, or fewer --gigabytes\n"
        )
        raise SystemExit(2)


def machine() -> Facts:
    """What the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory, GB": memory / 1e9,
        "load before": os.getloadavg()[0],
    }


def text_of(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def show(facts: Facts, as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    widest = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{widest}}  {text_of(value)}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = top.add_subparsers(dest="kind", required=True)
    for module, name in (
        (size_throughput, "throughput"),
        (size_restart, "restart"),
        (size_partitions, "partitions"),
    ):
        text = (module.__doc__ or "").strip().splitlines()[0]
        one = kinds.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print JSON")
        one.add_argument("--directory", type=Path, help="where the temporary directory is made")
        one.set_defaults(module=module)
        module.add_arguments(one)
    return top


def main() -> int:
    arguments = parser().parse_args()
    # So that what is to be removed and stopped at the end is, also then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="penstock-size-", dir=arguments.directory) as name:
        directory = Path(name)
        generator = generator_of(getattr(arguments, "generator", None))
        require_space(directory, arguments.module.bytes_needed(arguments, generator))
        facts = machine()
        facts |= arguments.module.measure(arguments, directory, generator)
        show(facts, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

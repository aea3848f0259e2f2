"""docs/TUTORIAL.md, executed from top to bottom: every file is written, every command run, and what
it prints is what the page shows.

How the page is read:

- A block after a line that ends with ``PATH`:`` is that file; TOML replaces a section of it.
- In a ``console`` block ``$ `` begins a command; the lines below are what it prints. It succeeds,
  unless the next command is ``echo $?``.
- ``<!-- until -->`` before a block: its command is repeated until it prints what is shown.
- ``<!-- received -->`` before a block: a message that the alerts' receiver gets.
- ``…`` is any text within a line; alone on a line, any lines.
- Seconds and times may be others. Windows, run ids and snapshots may be others, but the same value
  on the page is the same in the run, also in the commands below it.
- Addresses, the directory and Slack's address are those of the test, and of the page when printed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock_services.testing.services import free_ports
from polling import until

PAGE = Path(__file__).parents[2] / "docs" / "TUTORIAL.md"
HOME = "/home/ada"  # on the page, where the project is made
SLACK = "slack://TokenA/TokenB/TokenC/#data"
PORTS = {
    "KAFKA_PORT": 9092,
    "S3_PORT": 9000,
    "SPARK_PORT": 15002,
    "DAGSTER_PORT": 3000,
    "DAGSTER_CODE_SERVER_PORT": 4266,
}
DEADLINE_SECONDS = 1800.0  # against hanging
PAUSE_SECONDS = 2.0
COMMAND_SECONDS = 3600

BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n+```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"`(\S+)`:$")
SECTION = r"^\[{}\]$.*?(?=^\[|\Z)"
# Values of a run. The first two kinds differ each time that they are shown, the others are kept.
FREE = {
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+Z)?",
    "seconds": r"\d+\.\d+ s\b",
    "rate": r"[\d,]+/s\b",
}
KEPT = {
    "window": r"\d{4}-\d\d-\d\d-\d\d:\d\d",
    "span": r"\d{4}-\d\d-\d\d \d\d:\d\d-\d\d:\d\d",
    "run": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "sha256": r"\b[0-9a-f]{64}\b",
    "snapshot": r"\b\d{15,20}\b",
    "channel": r"#[0-9a-f]{6}\b",
}
VALUE = re.compile("|".join(f"(?P<{k}>{shape})" for k, shape in {**FREE, **KEPT}.items()))


@dataclass(frozen=True, slots=True)
class Step:
    """A file with its text, a command with what it prints, or (neither) a message received."""

    text: str
    file: str = ""
    command: str = ""
    until: bool = False


def steps(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer(page):
        before, kind, body = block.group("before", "kind", "body")
        if kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                yield Step(printed, command=command, until=before == "<!-- until -->")
        elif before == "<!-- received -->":
            yield Step(body)
        elif named := FILE.search(before):
            yield Step(body, file=named[1])


@dataclass(slots=True)
class Values:
    """What the values on the page are in this run."""

    known: dict[str, str] = field(default_factory=dict)

    def match(self, expected: str, printed: str) -> bool:
        """Whether it is what the page shows; then its values are known. Spaces do not count."""
        names: dict[str, str] = {}
        lines = [self._line(" ".join(line.split()), names) for line in expected.splitlines()]
        text = "".join(" ".join(line.split()) + "\n" for line in printed.splitlines())
        found = re.fullmatch("".join(lines), text)
        if found is not None:
            self.known |= {value: found[name] for value, name in names.items()}
        return found is not None

    def filled(self, command: str) -> str:
        """The command with this run's values."""
        return VALUE.sub(lambda found: self.known.get(found[0], found[0]), command)

    def _line(self, line: str, names: dict[str, str]) -> str:
        if line == "…":
            return r"(?:.*\n)*?"
        pattern, end = "", 0
        for found in VALUE.finditer(line):
            pattern += _text(line[end : found.start()]) + self._value(found, names)
            end = found.end()
        return pattern + _text(line[end:]) + "\n"

    def _value(self, found: re.Match[str], names: dict[str, str]) -> str:
        value, kind = found[0], str(found.lastgroup)
        if kind in FREE:
            return FREE[kind]
        if value in self.known:
            return re.escape(self.known[value])
        if value in names:
            return f"(?P={names[value]})"
        names[value] = f"v{len(names)}"
        return f"(?P<{names[value]}>{KEPT[kind]})"


def _text(text: str) -> str:
    return re.escape(text).replace("…", ".*?")


class Reader:
    """A reader who does what the page says, in a directory and on ports of the test."""

    def __init__(self, directory: Path, alerts: str) -> None:
        self.directory, self.top = directory, directory
        self.status = 0
        self.values = Values()
        self.received: list[str] = []
        ports = free_ports(len(PORTS))
        env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        env |= {f"PENSTOCK_{name}": str(port) for name, port in zip(PORTS, ports, strict=True)}
        self.env = {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        # What the page says, and what it is here.
        self.here = {SLACK: alerts, HOME: str(directory), "apprise slack": "apprise json"}
        for page, port in zip(PORTS.values(), ports, strict=True):
            self.here[f"127.0.0.1:{page}"] = f"127.0.0.1:{port}"

    def localized(self, text: str) -> str:
        for page, here in self.here.items():
            text = text.replace(page, here)
        return text

    def as_on_the_page(self, text: str) -> str:
        for page, here in self.here.items():
            text = text.replace(here, page)
        return text

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        text = self.localized(text)
        if path.suffix == ".toml":
            section = re.escape(text.splitlines()[0][1:-1])
            pattern = re.compile(SECTION.format(section), re.MULTILINE | re.DOTALL)
            text, count = pattern.subn(lambda _: text, path.read_text())
            assert count == 1, f"{name} has no such section"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, command: str) -> str:
        """What a command prints, errors included."""
        command = self.localized(self.values.filled(command))
        if command.startswith("cd "):
            self.directory /= command.removeprefix("cd ")
            return ""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.status})\n{command}"],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        self.status = done.returncode
        return self.as_on_the_page(done.stdout)

    def follow(self, step: Step, following: Step | None) -> None:
        if step.file:
            self.write(step.file, step.text)
            return
        if not step.command:
            until(
                f"the receiver has this message:\n{step.text}\n-- all of them:\n{self.received}",
                lambda: any(self._is_shown(step, one) for one in list(self.received)),
                seconds=DEADLINE_SECONDS,
                pause=PAUSE_SECONDS,
            )
            return
        printed = self.run(step.command)
        shown = self._is_shown(step, printed)
        if step.until and not shown:
            printed = until(
                f"$ {step.command} prints what the page shows:\n{step.text}",
                lambda: again if self._is_shown(step, again := self.run(step.command)) else "",
                seconds=DEADLINE_SECONDS,
                pause=PAUSE_SECONDS,
            )
            shown = True
        assert shown, f"$ {step.command}\n{printed}\n-- the page:\n{step.text}"
        if following is None or following.command != "echo $?":
            assert self.status == 0, f"$ {step.command} ended with {self.status}"

    def _is_shown(self, step: Step, printed: str) -> bool:
        return self.values.match(step.text, self.as_on_the_page(printed))


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    """Instead of Slack's server: its address, and the messages that it gets."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append(f"{document['title']}\n{document['message']}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}/", received
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(4 * 3600)
def test_the_page_is_true(tmp_path: Path, receiver: tuple[str, list[str]]) -> None:
    address, received = receiver
    reader = Reader(tmp_path, address)
    reader.received = received
    todo = list(steps(PAGE.read_text()))
    assert len(todo) >= 20
    try:
        for step, following in zip(todo, [*todo[1:], None], strict=True):
            reader.follow(step, following)
    finally:
        if reader.directory != tmp_path:
            reader.run("penstock down")


def test_values_of_a_run() -> None:
    values = Values()
    page = "2026-11-22-09:14  12  BALANCED  2026-11-22T09:15:31Z\n…\npayments: balanced in 1.2 s\n"
    run = "2027-01-01-23:59 12 BALANCED 2027-01-02T00:00:01Z\nx\ny\npayments: balanced in 10.7 s\n"
    assert not values.match(page, run.replace("12 ", "11 "))
    assert values.known == {}
    assert values.match(page, run)
    assert values.filled("show 2026-11-22-09:14") == "show 2027-01-01-23:59"
    assert not values.match("2026-11-22-09:14 again\n", "2027-01-01-23:58 again\n")


def test_what_the_page_leaves_out() -> None:
    assert Values().match("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert Values().match("a\n…\nend\n", "a\nend\n")
    assert not Values().match("a … c\nend\n", "a b c\n1\nend\n")


def test_a_page_is_read() -> None:
    page = "Write `a/b.py`:\n\n```python\n1\n```\n\n<!-- until -->\n```console\n$ x\ny\n$ z\n```\n"
    assert list(steps(page)) == [
        Step("1\n", file="a/b.py"),
        Step("y\n", command="x", until=True),
        Step("", command="z", until=True),
    ]

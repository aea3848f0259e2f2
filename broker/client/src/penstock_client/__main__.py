"""``penstock-client produce | tail | completion``: the client's commands, without the platform."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    Message,
    TopicPartition,
)

from penstock_client.audit import AuditFormatError, AuditHeader, find_audit_header
from penstock_client.command_line import (
    SHELLS,
    Parser,
    completion_script,
    leave,
    report_error,
    wants_json,
)
from penstock_client.lifecycle import exit_on_sigterm
from penstock_client.probe import partitions_of, quiet_log
from penstock_client.produce import produce_file
from penstock_client.rows import FORMATS
from penstock_client.stopping import stop_on_signals
from penstock_client.stream import MessageStream

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP_SERVERS"
METADATA_SECONDS = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 fine, 1 error, 2 usage, 130 SIGINT, 143 SIGTERM."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = wants_json(given)
    try:
        options = _parser().parse_args(given)
        if options.command == "completion":
            sys.stdout.write(completion_script(_parser(), options.shell))
            return 0
        config = _config(options)
        return _produce(config, options) if options.command == "produce" else _tail(config, options)
    except BrokenPipeError:  # as in `tail ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the one place where errors become a sentence
        return report_error("penstock-client", error, as_json=as_json)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="penstock-client",
        description=__doc__,
        epilog="Exit codes: 0 fine, 1 an error, 2 wrong usage, 130 SIGINT, 143 SIGTERM.",
    )
    parser.add_argument("--version", action="version", version=f"penstock-client {_release()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = Parser(add_help=False)
    common.add_argument(
        "--bootstrap-server",
        "--bootstrap-servers",
        dest="bootstrap",
        metavar="HOST:PORT",
        help=f"the cluster; default: {BOOTSTRAP_VARIABLE}",
    )
    common.add_argument(
        "--config",
        metavar="FILE",
        help="a file of name=value lines: librdkafka properties (SASL, TLS, ...)",
    )
    common.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="one property, overrides the file; may be repeated",
    )
    common.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="for people, or JSON for programs (errors too)",
    )

    produce = commands.add_parser(
        "produce", parents=[common], help="send the rows of a file as audited records"
    )
    produce.add_argument("--topic", required=True, help="the topic")
    produce.add_argument("--file", required=True, help="a .csv or .jsonl file, or - for stdin")
    produce.add_argument("--format", choices=FORMATS, help="default: from the file's name")
    produce.add_argument("--key", metavar="FIELD", help="the field with the record's key")
    produce.add_argument("--rate", type=float, metavar="N", help="records per second")
    produce.add_argument("--as-text", action="store_true", help="send CSV fields as text")
    produce.add_argument(
        "--skip-bad-lines",
        action="store_true",
        help="report lines that cannot be parsed, and continue",
    )

    tail = commands.add_parser(
        "tail", parents=[common], help="print the records of a topic as they arrive"
    )
    tail.add_argument("topic", help="the topic; it must exist")
    tail.add_argument("--offset", type=int, help="first offset; negative: this many before the end")
    tail.add_argument("--from-beginning", action="store_true", help="start at the first record")
    tail.add_argument(
        "-n", "--max-messages", type=int, metavar="N", help="stop after this many records"
    )
    tail.add_argument("-p", "--partition", type=int, metavar="P", help="only this partition")
    tail.add_argument("--no-follow", action="store_true", help="stop at the end of the log")

    completion = commands.add_parser("completion", help="print a shell's completion script")
    completion.add_argument("shell", choices=SHELLS)
    return parser


def _release() -> str:
    try:
        return version("penstock-client")
    except PackageNotFoundError:
        return "of unknown version"


def _config(options: argparse.Namespace) -> dict[str, Any]:
    config: dict[str, Any] = {}
    lines = Path(options.config).read_text().splitlines() if options.config else []
    settings = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for setting in [*settings, *options.settings]:
        name, separator, value = setting.partition("=")
        if not separator:
            raise ValueError(f"{setting!r}: a setting is written name=value")
        config[name.strip()] = value.strip()
    bootstrap = options.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap:
        config["bootstrap.servers"] = bootstrap
    if "bootstrap.servers" not in config:
        raise ValueError(f"which cluster? Give --bootstrap-server, or set {BOOTSTRAP_VARIABLE}")
    return config


def _produce(config: dict[str, Any], options: argparse.Namespace) -> int:
    with stop_on_signals() as stop:
        report = produce_file(
            config,
            options.topic,
            options.file,
            form=options.format,
            key=options.key,
            rate=options.rate,
            as_text=options.as_text,
            skip_bad_lines=options.skip_bad_lines,
            stop=stop,
        )
    for problem in report.errors:
        _print(sys.stderr, problem)
    _print(sys.stdout, json.dumps(asdict(report)) if options.output == "json" else str(report))
    if report.interrupted:
        leave(stop.exit_code)
    return 0 if report.ok else 1


def _tail(config: dict[str, Any], options: argparse.Namespace) -> int:
    exit_on_sigterm()
    shown = 0
    config = {"logger": quiet_log, **config}
    places = _places(config, options)
    with MessageStream(config, assign=places, until_end=options.no_follow) as stream:
        for message in stream:
            _print(sys.stdout, _line(message, as_json=options.output == "json"))
            shown += 1
            if shown == options.max_messages:
                break
    return 0


def _places(config: dict[str, Any], options: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Where to start in each partition."""
    topic = options.topic
    partitions = partitions_of(config, topic)
    if options.partition is not None:
        if options.partition not in partitions:
            raise ValueError(f"{topic} has partitions 0 to {len(partitions) - 1}")
        partitions = [options.partition]
    if options.offset is None:
        start = OFFSET_BEGINNING if options.from_beginning else OFFSET_END
        return [(topic, partition, start) for partition in partitions]
    if options.offset >= 0:
        return [(topic, partition, options.offset) for partition in partitions]
    return _before_end(config, topic, partitions, -options.offset)


def _before_end(
    config: dict[str, Any], topic: str, partitions: list[int], count: int
) -> list[tuple[str, int, int]]:
    consumer = Consumer({**config, "group.id": "penstock-client-tail"})
    try:
        places = []
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=METADATA_SECONDS
            )
            places.append((topic, partition, max(low, high - count)))
        return places
    finally:
        consumer.close()


def _line(message: Message, *, as_json: bool) -> str:
    key, value = _text(message.key()), _text(message.value())
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    stamp = _stamp(message)
    if not as_json:
        who = f"  #{stamp.sequence} of {stamp.incarnation} on {stamp.server}" if stamp else ""
        place = f"{message.topic()}-{message.partition()}@{message.offset()}"
        return f"{when}  {place}  {_or_dash(key)}  {_or_dash(value)}{who}"
    shown: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": when,
        "key": key,
        "value": value,
    }
    if stamp:
        shown["audit"] = {
            "incarnation": str(stamp.incarnation),
            "sequence": stamp.sequence,
            "server": stamp.server,
        }
    return json.dumps(shown, ensure_ascii=False)


def _stamp(message: Message) -> AuditHeader | None:
    try:
        return find_audit_header(message.headers())
    except AuditFormatError:
        return None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _or_dash(text: str | None) -> str:
    return "-" if text is None else text


def _print(out: Any, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())

"""The command ``penstock-broker``: serve, api-table, dump-log, check-log, completion."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from penstock_broker.command_line import (
    SHELLS,
    USAGE,
    Parser,
    UsageError,
    completion_script,
    report_error,
    show_trace,
    wants_json,
)
from penstock_broker.config import BrokerConfig, ConfigError, load_config, near_names

if TYPE_CHECKING:
    from penstock_broker.server.broker import Broker

_EXAMPLES = """\
examples:
  penstock-broker serve --data-dir ./data
  penstock-broker serve --data-dir ./data --config server.properties --set num.partitions=6
  penstock-broker serve --data-dir ./data --port 0 --http 127.0.0.1:9404 --log-format json
  penstock-broker check-log ./data
  penstock-broker dump-log ./data/orders-0/00000000000000000000.log --records
"""
_SERVE = """\
Runs a broker in the foreground until SIGTERM or SIGINT, which end it in order.

"penstock-broker ready on HOST:PORT" on standard output says that it accepts requests; everything
else goes to standard error. Settings have Kafka's names: --config takes a server.properties, of
which names that this broker does not know are reported and skipped; --set overrides it.
"""
_DUMP = "Prints the batches of a segment file (.log): offsets, times, producers, codecs, checksums."
_CHECK = "Reads a data directory, or one partition of it, and reports everything that is wrong."


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="penstock-broker",
        description="A Kafka-compatible message broker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock-broker {_release()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    output = Parser(add_help=False)
    output.add_argument(
        "-o",
        "--output",
        choices=["table", "json"],
        default="table",
        help="for people, or JSON for programs (errors too)",
    )
    _add_serve(commands, output)
    table = commands.add_parser(
        "api-table",
        parents=[output],
        help="print the APIs and versions that are served",
        description="Prints the Kafka APIs and versions that this broker serves.",
    )
    table.add_argument("--markdown", action="store_true", help="as Markdown, for docs/PROTOCOL.md")
    check = commands.add_parser(
        "check-log",
        parents=[output],
        help="check every file of a data directory",
        description=_CHECK,
    )
    check.add_argument(
        "directory", type=Path, help="a data directory, or the directory of a partition in it"
    )
    check.add_argument(
        "--headers-only", action="store_true", help="check batches without opening their records"
    )
    dump = commands.add_parser(
        "dump-log",
        parents=[output],
        help="print the batches of a segment file",
        description=_DUMP,
    )
    dump.add_argument("file", type=Path, help="a .log file")
    dump.add_argument("--records", action="store_true", help="print every record too")
    completion = commands.add_parser("completion", help="print a shell's completion script")
    completion.add_argument("shell", choices=SHELLS)
    return parser


def _add_serve(commands: argparse._SubParsersAction[Parser], output: Parser) -> None:
    serve = commands.add_parser(
        "serve",
        parents=[output],
        help="run a broker in the foreground",
        description=_SERVE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = serve.add_argument
    add("--data-dir", type=Path, required=True, help="directory of logs and metadata")
    add("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    add("--port", type=_port, default=9092, help="port to bind (default 9092); 0: a free port")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="a file of name=value lines with Kafka's property names",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, overrides the file; may be repeated",
    )
    add(
        "--http",
        metavar="HOST:PORT",
        help="serve /metrics and /health there (the setting penstock.http.listener)",
    )
    add(
        "--log-level",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="the lowest severity that is logged (the setting penstock.log.level)",
    )
    add(
        "--log-format",
        choices=["text", "json"],
        help="text for people, or one JSON object per event (the setting penstock.log.format)",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    from penstock_broker.server.log_output import configure_logging  # noqa: PLC0415

    flags = {
        "penstock.http.listener": arguments.http,
        "penstock.log.level": arguments.log_level,
        "penstock.log.format": arguments.log_format,
    }
    given = [f"{name}={value}" for name, value in flags.items() if value is not None]
    try:
        config, unknown = load_config(arguments.config, [*arguments.set, *given])
    except ConfigError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"cannot read the settings in {arguments.config}: {error.strerror}")
    except UnicodeDecodeError:
        _fail(f"cannot read the settings in {arguments.config}: it is not UTF-8 text")
    configure_logging(config.penstock_log_level, config.penstock_log_format)
    for name in unknown:
        logging.getLogger("penstock_broker").warning(
            "%(file)s: setting %(setting)s is not known here and has no effect%(hint)s",
            {
                "event": "setting_unknown",
                "file": arguments.config,
                "setting": name,
                "hint": near_names(name),
            },
        )
    return _run(arguments, config)


def _run(arguments: argparse.Namespace, config: BrokerConfig) -> int:
    from penstock_broker.server.broker import StartError  # noqa: PLC0415
    from penstock_broker.server.process import serve  # noqa: PLC0415

    def ready(broker: Broker, host: str, port: int) -> None:
        if arguments.output == "json":
            sys.stdout.write(json.dumps({"event": "ready", "host": host, "port": port}) + "\n")
            sys.stdout.flush()
            return
        sys.stdout.write(f"penstock-broker ready on {host}:{port}\n")
        address = broker.observation.address
        if address is not None:
            sys.stdout.write(f"metrics and health on http://{address[0]}:{address[1]}\n")
        sys.stdout.flush()

    try:
        asyncio.run(
            serve(config, arguments.data_dir, arguments.host, arguments.port, on_ready=ready)
        )
    except StartError as error:
        _fail(str(error))
    return 0


class _FailedError(Exception):
    """What was asked cannot be done: the sentence that says why."""


def _fail(message: str) -> NoReturn:
    raise _FailedError(message)


def _release() -> str:
    try:
        return version("penstock-broker")
    except PackageNotFoundError:
        return "of unknown version"


def _api_table(markdown: bool, *, as_json: bool) -> int:
    from penstock_broker.api.table import as_markdown, as_text, rows  # noqa: PLC0415

    if as_json:
        sys.stdout.write(json.dumps(rows(), indent=2) + "\n")
    else:
        sys.stdout.write(as_markdown() if markdown else as_text())
    return 0


def _as_lines(work: Callable[[TextIO], int]) -> int:
    """A report's lines as one document, with the exit code that it ends with."""
    text = io.StringIO()
    code = work(text)
    document = {"exit_code": code, "lines": text.getvalue().splitlines()}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return code


def _dump_log(path: Path, *, with_records: bool, as_json: bool) -> int:
    from penstock_broker.log.dump import dump_log  # noqa: PLC0415

    if not path.is_file():
        hint = "; a partition's segments are in it as .log files" if path.is_dir() else ""
        _fail(f"{path} is not a file{hint}")
    if as_json:
        return _as_lines(lambda out: dump_log(path, out, with_records=with_records))
    return dump_log(path, sys.stdout, with_records=with_records)


def _check_log(directory: Path, *, with_records: bool, as_json: bool) -> int:
    from penstock_broker.log.check import check_log  # noqa: PLC0415

    if not directory.is_dir():
        _fail(f"{directory} is not a directory")
    if as_json:
        return _as_lines(lambda out: check_log(directory, out, with_records=with_records))
    return check_log(directory, sys.stdout, with_records=with_records)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 where it failed, 2 where it was called wrongly."""
    given = sys.argv[1:] if arguments is None else arguments
    as_json = wants_json(given)
    try:
        return _run_command(_parser().parse_args(given))
    except UsageError as error:
        return report_error(str(error), as_json=as_json, code=USAGE, kind="UsageError")
    except _FailedError as error:
        show_trace(error)
        return report_error(str(error), as_json=as_json)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


def _run_command(parsed: argparse.Namespace) -> int:
    if parsed.command == "completion":
        sys.stdout.write(completion_script(_parser(), parsed.shell))
        return 0
    as_json = parsed.output == "json"
    if parsed.command == "serve":
        return _serve(parsed)
    if parsed.command == "api-table":
        return _api_table(parsed.markdown, as_json=as_json)
    if parsed.command == "check-log":
        return _check_log(parsed.directory, with_records=not parsed.headers_only, as_json=as_json)
    return _dump_log(parsed.file, with_records=parsed.records, as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())

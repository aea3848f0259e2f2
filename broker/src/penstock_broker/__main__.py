"""The command ``penstock-broker``: serve, api-table, dump-log, check-log."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

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
which names that this broker does not know are reported and skipped; --set goes on top of it.
"""
_DUMP = "Prints the batches of a segment file (.log): offsets, times, producers, codecs, checksums."
_CHECK = "Reads a data directory, or one partition of it, and reports everything that is wrong."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock-broker",
        description="A Kafka-compatible message broker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock-broker {_release()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    table = commands.add_parser(
        "api-table",
        help="print the APIs and versions that are served",
        description="Prints the Kafka APIs and versions that this broker serves.",
    )
    table.add_argument("--markdown", action="store_true", help="as docs/PROTOCOL.md")
    check = commands.add_parser(
        "check-log", help="look at every file of a data directory", description=_CHECK
    )
    check.add_argument("directory", type=Path, help="a data directory, or a partition's in it")
    check.add_argument(
        "--headers-only", action="store_true", help="check batches without opening their records"
    )
    dump = commands.add_parser(
        "dump-log", help="print the batches of a segment file", description=_DUMP
    )
    dump.add_argument("file", type=Path, help="a .log file")
    dump.add_argument("--records", action="store_true", help="print every record, too")
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="run a broker in the foreground",
        description=_SERVE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = serve.add_argument
    add("--data-dir", type=Path, required=True, help="where logs and metadata live")
    add("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    add("--port", type=_port, default=9092, help="port to bind (default 9092); 0 takes a free one")
    add("--config", type=Path, metavar="FILE", help="a file of name=value lines, Kafka's names")
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, on top of the file; may be repeated",
    )
    add(
        "--http",
        metavar="HOST:PORT",
        help="serve /metrics and /health there (the setting penstock.http.listener)",
    )
    add(
        "--log-level",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="the least severity that is written (the setting penstock.log.level)",
    )
    add(
        "--log-format",
        choices=["text", "json"],
        help="lines for people or one JSON object per event (the setting penstock.log.format)",
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
        return _fail(str(error))
    except OSError as error:
        return _fail(f"cannot read the settings in {arguments.config}: {error.strerror}")
    except UnicodeDecodeError:
        return _fail(f"cannot read the settings in {arguments.config}: it is not UTF-8 text")
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
        return _fail(str(error))
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"penstock-broker: {message}\n")
    return 1


def _release() -> str:
    try:
        return version("penstock-broker")
    except PackageNotFoundError:
        return "of unknown version"


def _api_table(markdown: bool) -> int:
    from penstock_broker.api.table import as_markdown, as_text  # noqa: PLC0415

    sys.stdout.write(as_markdown() if markdown else as_text())
    return 0


def _dump_log(path: Path, *, with_records: bool) -> int:
    from penstock_broker.log.dump import dump_log  # noqa: PLC0415

    if not path.is_file():
        hint = "; a partition's segments are in it as .log files" if path.is_dir() else ""
        return _fail(f"{path} is not a file{hint}")
    return dump_log(path, sys.stdout, with_records=with_records)


def _check_log(directory: Path, *, with_records: bool) -> int:
    from penstock_broker.log.check import check_log  # noqa: PLC0415

    if not directory.is_dir():
        return _fail(f"{directory} is not a directory")
    return check_log(directory, sys.stdout, with_records=with_records)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 where it failed, 2 where it was called wrongly."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "serve":
            return _serve(parsed)
        if parsed.command == "api-table":
            return _api_table(parsed.markdown)
        if parsed.command == "check-log":
            return _check_log(parsed.directory, with_records=not parsed.headers_only)
        return _dump_log(parsed.file, with_records=parsed.records)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has seen enough
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

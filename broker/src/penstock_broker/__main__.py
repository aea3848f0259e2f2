"""The command ``penstock-broker``: serve, api-table, dump-log."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from penstock_broker.config import BrokerConfig, ConfigError, load_config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock-broker", description="A Kafka-compatible message broker."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run a broker in the foreground")
    serve.add_argument("--data-dir", type=Path, required=True, help="where logs and metadata live")
    serve.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    serve.add_argument("--port", type=int, default=9092, help="port to bind; 0 takes a free one")
    serve.add_argument("--config", type=Path, help="a file of name=value lines, Kafka's names")
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, on top of the file; may be repeated",
    )
    serve.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    table = commands.add_parser("api-table", help="print the APIs and versions that are served")
    table.add_argument("--markdown", action="store_true", help="as docs/PROTOCOL.md")
    dump = commands.add_parser("dump-log", help="print the batches of a segment file")
    dump.add_argument("file", type=Path, help="a .log file")
    dump.add_argument("--records", action="store_true", help="print every record, too")
    return parser


def _serve(arguments: argparse.Namespace) -> int:

    logging.basicConfig(
        level=arguments.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        config, unknown = load_config(arguments.config, arguments.set)
    except (ConfigError, OSError) as error:
        return _fail(str(error))
    for name in unknown:
        logging.getLogger("penstock_broker").warning("setting %s is not known here", name)
    return _run(arguments, config)


def _run(arguments: argparse.Namespace, config: BrokerConfig) -> int:
    from penstock_broker.server.broker import StartError, serve  # noqa: PLC0415

    def ready(host: str, port: int) -> None:
        sys.stdout.write(f"penstock-broker ready on {host}:{port}\n")
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


def _api_table(markdown: bool) -> int:
    from penstock_broker.api.table import as_markdown, as_text  # noqa: PLC0415

    sys.stdout.write(as_markdown() if markdown else as_text())
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit status."""
    parsed = _parser().parse_args(arguments)
    if parsed.command == "serve":
        return _serve(parsed)
    if parsed.command == "api-table":
        return _api_table(parsed.markdown)
    from penstock_broker.log.dump import dump_log  # noqa: PLC0415

    return dump_log(parsed.file, sys.stdout, with_records=parsed.records)


if __name__ == "__main__":
    sys.exit(main())

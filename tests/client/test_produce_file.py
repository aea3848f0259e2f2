"""Producing a file: rows, bad lines, progress, and the command around it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from penstock_client.__main__ import main
from penstock_client.errors import InputError
from penstock_client.produce import produce_file
from penstock_client.rows import Row, read_rows


def _rows(text: str, form: str, key: str | None = None, **options: bool) -> list[Row | InputError]:
    return list(read_rows(text.splitlines(keepends=True), "f", form, key, **options))


def test_csv_fields_get_json_types() -> None:
    text = '\ufeffid,name,x,on,zip\n1,"a, ""b""",-1.5e3,true,00123\n2,ü,,false,1.0\n'
    first, second = _rows(text, "csv", "id")
    assert isinstance(first, Row) and isinstance(second, Row)
    assert json.loads(first.value) == {
        "id": 1, "name": 'a, "b"', "x": -1500.0, "on": True, "zip": "00123"
    }  # fmt: skip
    assert (first.key, first.line) == (b"1", 2)
    assert json.loads(second.value) == {"id": 2, "name": "ü", "x": None, "on": False, "zip": 1.0}
    assert "ü".encode() in second.value
    (plain, _) = _rows(text, "csv", as_text=True)
    assert isinstance(plain, Row)
    assert json.loads(plain.value)["id"] == "1"


def test_json_lines_are_sent_unchanged() -> None:
    rows = _rows('{"a": 1,  "b":"k"}\n\n{"b":null}\n{"b":[1]}\n', "jsonl", "b")
    assert rows == [
        Row(1, b'{"a": 1,  "b":"k"}', b"k"),
        Row(3, b'{"b":null}', None),
        Row(4, b'{"b":[1]}', b"[1]"),
    ]
    assert _rows("5\n", "jsonl") == [Row(1, b"5", None)]


@pytest.mark.parametrize(
    ("text", "form", "key", "line", "words"),
    [
        ('{"a":1}\n{"a":\n', "jsonl", None, 2, "not JSON"),
        ("5\n", "jsonl", "a", 1, "no field 'a'"),
        ("a,b\n1,2\n1\n", "csv", None, 3, "1 fields where the head has 2"),
        ("a,b\n1,2,3\n", "csv", None, 2, "Quote fields"),
        ('a\n"open\n', "csv", None, 2, "quotes"),
        ("a\n\udcff\n", "csv", None, 2, "not UTF-8"),
        ('{"a":"\udcff"}\n', "jsonl", None, 1, "iconv"),
    ],
)
def test_a_bad_line_is_named_with_how_to_fix_it(
    text: str, form: str, key: str | None, line: int, words: str
) -> None:
    (error,) = [row for row in _rows(text, form, key) if isinstance(row, InputError)]
    assert error.line == line
    assert str(error).startswith(f"f, line {line}: ")
    assert words in str(error)


@pytest.mark.parametrize("text", ["", "a,a\n", "a,\n1,2\n"])
def test_a_bad_head_ends_it(text: str) -> None:
    with pytest.raises(InputError, match="line 1"):
        _rows(text, "csv")
    with pytest.raises(InputError, match="There are: a, b"):
        _rows("a,b\n", "csv", "c")


def test_a_file_arrives_whole(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,v\n" + "".join(f"{n},{n * n}\n" for n in range(200)))
    out = io.StringIO()
    report = produce_file(cluster.config(), cluster.topic, str(file), key="id", progress=out)
    assert (report.acknowledged, report.failed, report.ok) == (200, 0, True)
    values = {m.key(): json.loads(m.value() or b"") for m in cluster.messages(cluster.topic)}
    assert values == {b"%d" % n: {"id": n, "v": n * n} for n in range(200)}
    (incarnation,) = {event.incarnation for event in cluster.events()}
    assert cluster.assert_balanced(incarnation) == 200


def test_rate_and_plain_progress(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_client.produce.LINE_SECONDS", 0.2)
    file = tmp_path / "rows.jsonl"
    file.write_text("1\n" * 100)
    out = io.StringIO()
    report = produce_file(cluster.config(), cluster.topic, str(file), rate=100, progress=out)
    assert report.seconds >= 0.9
    assert f"{cluster.topic}: " in out.getvalue()
    assert "acknowledged" in out.getvalue().splitlines()[0]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("1\n" * 50)
    out = Terminal()
    produce_file(cluster.config(), cluster.topic, str(file), progress=out)
    last = out.getvalue().split("\r")[-1]
    assert last.startswith(f"{cluster.topic}: 50.0 records [")
    assert "records/s]" in last
    assert "acknowledged" not in out.getvalue(), "a bar or lines, not both"


def test_the_command(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a":1}\n{"a":\n{"a":3}\n')
    common = ["--bootstrap-server", cluster.bootstrap]
    produce = ["produce", "--topic", cluster.topic, "--file", str(file), *common]
    produce += ["--set", f"audit.topic={cluster.audit_topic}"]
    assert main(produce) == 1
    assert f"{file}, line 2: not JSON" in capsys.readouterr().err
    assert main([*produce, "--skip-bad-lines", "--key", "a"]) == 0
    said = capsys.readouterr()
    assert "2 records acknowledged, 1 bad lines skipped" in said.out
    assert "line 2" in said.err
    assert main(["tail", cluster.topic, "--from-beginning", "--no-follow", *common]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3  # the row before the bad line was sent the first time, too
    assert main(["tail", cluster.topic, "--offset", "-1", "-n", "1", "-o", "json", *common]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["topic"] == cluster.topic
    assert record["audit"]["sequence"] in {0, 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "--topic", "t", "--file", "rows.xls"], "--format"),
        (["produce", "--topic", "t", "--file", "rows.csv", "--rate", "0"], "more than 0"),
        (["produce", "--topic", "t", "--file", "nowhere.csv"], "nowhere.csv"),
        (["produce", "--topic", "t", "--file", "-", "--set", "acks"], "name=value"),
        (["produce", "--topic", "t", "--file", "nowhere.csv", "--set", "acks=0"], "acks=0"),
    ],
)
def test_usage_errors_say_what_to_do(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "acks=0" in arguments:
        file = tmp_path / "rows.csv"
        file.write_text("a\n1\n")
        arguments = [str(file) if a == "nowhere.csv" else a for a in arguments]
    assert main([*arguments, "--bootstrap-server", "localhost:1"]) == 1
    assert words in capsys.readouterr().err


def test_which_cluster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP_SERVERS", raising=False)
    assert main(["tail", "t"]) == 1
    assert "PENSTOCK_BOOTSTRAP_SERVERS" in capsys.readouterr().err

"""`penstock validate`: every mistake of every declaration at once, with file and line."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, NestedField, StringType

from penstock_platform.cli import main as cli_main
from penstock_platform.cli.init import create
from penstock_platform.components.definitions import DefinitionsError, require_valid
from penstock_platform.components.validation import problems_of_folder
from penstock_platform.settings import Settings
from penstock_platform.topics.contract_tables import table_problems
from penstock_platform.topics.model.contract import load_contract

TOPIC = "type: penstock_platform.TopicComponent\nattributes:\n"
PLATFORM = "type: penstock_platform.PlatformComponent\nattributes:\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "defs"


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "defs.yaml").write_text(text)


def test_all_problems_of_all_files_at_once(folder: Path) -> None:
    write(folder, "a", TOPIC + "  metadata: {name: a}\n  spec:\n    partitons: 3\n  lnd: {}\n")
    write(folder, "b", TOPIC + "  metadata: {name: b}\n  retention: {keep: a week}\n")
    write(folder, "c", "type: [\n")
    write(folder, "d", "type: penstock_platform.TopicComponnt\nattributes: {}\n")
    write(folder, "e", "type: penstock_platform.PlatformComponent\natributes: {}\n")
    write(folder, "h", PLATFORM + "  reverify: {horizon: 91d}\n")
    write(folder, "f", "just text\n")
    write(folder, "g", "attributes: {}\n")
    problems = problems_of_folder(folder).problems
    expected = [
        ("defs/a/defs.yaml:5: spec.partitons is not a key here; did you mean partitions?"),
        ("defs/a/defs.yaml:6: lnd is not a key here; did you mean land?"),
        ("defs/b/defs.yaml:4: retention.keep: write a number with its unit"),
        ("defs/c/defs.yaml:2: not YAML: "),
        ("defs/d/defs.yaml:1: penstock_platform.TopicComponnt is not a component; did you mean "),
        ("defs/e/defs.yaml:2: atributes is not a key here; did you mean attributes?"),
        ("defs/f/defs.yaml:1: expected the keys type and attributes"),
        ("defs/g/defs.yaml:1: type is missing"),
        ("defs/h/defs.yaml:2: reverify.horizon is 91d, and what could heal"),
    ]
    assert len(problems) == len(expected), problems
    for problem, begin in zip(problems, expected, strict=True):
        assert problem.startswith(begin)


def test_a_topic_declared_twice_names_both_files(folder: Path) -> None:
    for name in ("a", "b"):
        write(folder, name, TOPIC + "  metadata: {name: shop.orders}\n")
    problems = problems_of_folder(folder).problems
    assert problems == [
        "defs/b/defs.yaml:2: topic shop.orders is declared twice, first at defs/a/defs.yaml:2; "
        "keep one declaration"
    ]


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (None, "cannot read"),
        ("{", "orders.schema.json:1: not JSON"),
        (
            '{"type": "object", "properties": {\n "a": {"type": "numeral"},\n "b": {"typ": 1}}}',
            "orders.schema.json:2: ",
        ),
    ],
)
def test_a_missing_or_bad_contract_names_its_declaration(
    folder: Path, contract: str | None, said: str
) -> None:
    declaration = "  metadata: {name: a}\n  land: {}\n  schema: {file: orders.schema.json}\n"
    write(folder, "a", TOPIC + declaration)
    if contract is not None:
        (folder / "a" / "orders.schema.json").write_text(contract)
    problems = problems_of_folder(folder).problems
    assert problems
    assert all(p.startswith("defs/a/defs.yaml:5: schema.file: ") for p in problems)
    assert said in problems[0]


def test_a_key_that_occurs_twice_is_named(folder: Path) -> None:
    write(folder, "a", TOPIC + "  metadata: {name: a}\n  spec: {}\n  spec: {partitions: 2}\n")
    problems = problems_of_folder(folder).problems
    assert problems == ["defs/a/defs.yaml:5: spec is there twice, first in line 4; keep one"]


def test_several_documents_and_other_components(folder: Path) -> None:
    text = TOPIC + "  metadata: {name: a}\n---\n" + TOPIC + "  metadata: {nam: b}\n---\n"
    write(folder, "a", text + "type: dagster.DefinitionsComponent\nattributes: {x: 1}\n")
    found = problems_of_folder(folder)
    places = [p.split(": ")[0] for p in found.problems]
    assert places == ["defs/a/defs.yaml:7", "defs/a/defs.yaml:7"]
    assert [declared.spec.name for declared in found.topics] == ["a"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create(tmp_path, "shop", "shop_pipelines")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_project_is_valid(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_main.run(["validate"]) == 0
    assert "shop_pipelines.definitions loads" in capsys.readouterr().out
    assert require_valid(Settings.load(project / ".penstock", {}))


def test_a_typo_is_a_line_and_no_trace(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(project.glob("src/*/defs/orders/defs.yaml"))
    file.write_text(file.read_text().replace("partitions:", "partitons:"))
    line = next(n for n, x in enumerate(file.read_text().splitlines(), 1) if "partitons" in x)
    assert cli_main.run(["validate", "-o", "json"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["valid"] is False
    assert document["problems"] == [
        f"{file.relative_to(project)}:{line}: spec.partitons is not a key here; "
        "did you mean partitions?"
    ]
    assert "Traceback" not in captured.err
    with pytest.raises(DefinitionsError, match="did you mean partitions"):
        require_valid(Settings.load(project / ".penstock", {}))


def test_variables_of_the_project_are_known(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(project.glob("src/*/defs/orders/defs.yaml"))
    file.write_text(file.read_text().replace("name: orders", "name: 'shop.{{ env.STAGE_HERE }}'"))
    assert cli_main.run(["validate"]) == 1
    assert "variable STAGE_HERE is not set" in capsys.readouterr().err
    (project / ".env").write_text("STAGE_HERE=prod\nPENSTOCK_CLUSTER=other\n")
    assert cli_main.run(["validate", "-o", "json"]) == 0
    assert "shop.prod" in json.loads(capsys.readouterr().out)["topics"]
    assert Settings.load(project / ".penstock", {}).project_variables() == {"STAGE_HERE": "prod"}


def test_an_error_of_the_users_python_is_its_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = next(project.glob("src/*/definitions.py"))
    module.write_text(module.read_text() + "\nprint('noise')\nopen('/no/such/file')\n")
    line = len(module.read_text().splitlines())
    assert cli_main.run(["validate"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{module.relative_to(project)}:{line}: FileNotFoundError: ")
    assert "Traceback" not in said


def test_a_contract_that_does_not_fit_its_table_is_refused_before_any_run(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Settings.load(project / ".penstock", {}).catalog_path
    catalog.parent.mkdir(parents=True)
    place = {"uri": f"sqlite:///{catalog}", "warehouse": (project / "lake").as_uri()}
    lake = SqlCatalog("lake", **place)
    lake.create_namespace("silver")
    columns = [("order_id", StringType()), ("quantity", StringType()), ("price", DoubleType())]
    fields = [NestedField(n, name, kind) for n, (name, kind) in enumerate(columns, 1)]
    lake.create_table("silver.orders", Schema(*fields))
    (schema,) = project.glob("src/*/defs/orders/orders.schema.json")
    line = next(n for n, x in enumerate(schema.read_text().splitlines(), 1) if '"quantity"' in x)

    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as store:
        # An object store that is there and has nothing: 501 to everything.
        threading.Thread(target=store.serve_forever, daemon=True).start()
        monkeypatch.setenv("PENSTOCK_S3_PORT", str(store.server_port))
        assert cli_main.run(["validate", "-o", "json"]) == 1
        first, second = json.loads(capsys.readouterr().out)["problems"]
        assert first == (
            f"{schema.relative_to(project)}:{line}: quantity is bigint now, and the table has "
            "string; take it back, or declare version: 2 under schema"
        )
        assert "penstock table remake orders" in second
        settings = Settings.load(project / ".penstock")
        newer = load_contract(schema.read_text(), schema.name, version=2)
        assert table_problems(settings, [("orders", newer)]) == ([], []), "has a table of its own"
        store.shutdown()
    problems, (note,) = table_problems(settings, [("orders", newer)])
    assert not problems
    assert note.startswith("the contracts were not compared with their tables: ")

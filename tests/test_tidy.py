"""The project's rules that a machine can hold: layout, names, sizes, and what must not appear.

Architecture (who may import whom) is import-linter's; this is the rest of CONTRIBUTING's page.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("broker", "broker/client", "platform", "deploy/services", "pipelines")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600

SOURCES = sorted(
    path
    for distribution in DISTRIBUTIONS
    for path in (ROOT / distribution / "src").rglob("*.py")
    if "__pycache__" not in path.parts
)
# Directories that tools and services make.
MADE = {
    *(".git", ".venv", ".tools", ".penstock", ".hypothesis", "__pycache__"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache"),
}
# Where a clock may be read: everywhere else time is a parameter.
CLOCK_MODULES = {"clock.py", "system_clock.py"}
CLOCK_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """What git lists; without git or outside a clone, all files but those that tools make."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout.decode()
        found = [ROOT / name for name in listing.split("\0") if name]
    except (FileNotFoundError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not MADE & set(path.relative_to(ROOT).parts)]
    found = [path for path in found if path.is_file()]
    assert set(SOURCES) & set(found), "the listing has none of our modules: nothing was looked at"
    return found


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked_files():
        if path.suffix in {".png", ".lock", ".bin", ".jar"}:
            continue
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue


def test_files_are_found_without_git_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is empty must not let every test of files pass."""
    with_git = set(tracked_files())
    monkeypatch.setenv("PATH", "")
    assert with_git & set(tracked_files()) >= set(SOURCES) & with_git


def test_the_folder_called_platform_shadows_nothing() -> None:
    """`platform/` at the root must stay a namespace directory beside the standard library's."""
    assert not (ROOT / "platform" / "__init__.py").exists()
    code = "import platform, uuid; platform.system(); uuid.uuid4()"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distribution_folders_hold_no_modules(distribution: str) -> None:
    modules = [p.name for p in (ROOT / distribution).glob("*.py")]
    assert not modules, f"{distribution}/ holds modules: {modules}; they belong in src/"


def test_tests_have_no_packages_and_unique_names() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not (ROOT / "tests" / "platform").exists()
    seen: dict[str, Path] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert path.name not in seen, f"{relative(path)} and {relative(seen[path.name])}"
        seen[path.name] = path


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_module(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.count("\n")
    assert lines <= MODULE_LINES_MAX, f"{lines} lines: split it by noun"
    if path.name not in {"__init__.py", "__main__.py"} and text.strip():
        assert ast.get_docstring(tree), "a module says in its first line what it is"
    assert path.stem not in sys.stdlib_module_names or path.stem.startswith("__"), "stdlib name"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            assert size <= FUNCTION_LINES_MAX, f"{node.name}: {size} lines"
    if path.name not in CLOCK_MODULES:
        assert not list(clock_reads(tree)), "the clock is a parameter (see clock.py)"


def clock_reads(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if (name, node.func.attr) in CLOCK_CALLS:
                yield f"line {node.lineno}: {name}.{node.func.attr}"


# The one place where tests wait. (Source that a test gives to a subprocess is a string: not seen.)
SLEEPS = {"polling.py"}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=relative)
def test_tests_poll_and_do_not_sleep(path: Path) -> None:
    if path.name not in SLEEPS:
        found = list(sleeps(ast.parse(path.read_text())))
        assert not found, f"{found}: wait with until or until_async of tests/polling.py"


def sleeps(tree: ast.AST) -> Iterator[str]:
    """Calls of ``sleep`` of anything but 0, and of ``wait`` on an event that is never set."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name("sleep") | ast.Attribute(attr="sleep"):
                if not (len(node.args) == 1 and ast.unparse(node.args[0]) == "0"):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Attribute(ast.Call(ast.Name("Event") | ast.Attribute(attr="Event")), "wait"):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_the_search_for_sleeps_finds_them() -> None:
    code = "time.sleep(0.1); asyncio.sleep(n); sleep(1); sleep(0); threading.Event().wait(0.1)"
    code += "; asyncio.sleep(0); event.wait(1)"
    assert len(list(sleeps(ast.parse(code)))) == 4


PLATFORM = ROOT / "platform/src/penstock_platform"
# What a model may import beside models: the vocabulary of all features, pure as well.
VOCABULARY = {"clock", "outages", "problems", "ranges", "toml_lines"}


def is_model(module: str) -> bool:
    parts = module.split(".")[1:]
    return "model" in parts or parts[0] in VOCABULARY


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(PLATFORM)], ids=relative)
def test_a_model_imports_models_alone(path: Path) -> None:
    """What decides is pure: no store, no session, no Dagster, however indirectly."""
    own = ".".join(path.relative_to(PLATFORM.parent).with_suffix("").parts)
    if path == PLATFORM / "__init__.py" or not is_model(own):
        return
    imported = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    impure = {m for m in imported if m.startswith("penstock_platform.") and not is_model(m)}
    assert not impure, f"{impure}: a model imports models and the vocabulary alone"


def test_only_one_module_imports_kazoo() -> None:
    imports_kazoo = re.compile(r"^\s*(from|import) kazoo", re.MULTILINE)
    users = [relative(path) for path in SOURCES if imports_kazoo.search(path.read_text())]
    assert [u for u in users if not u.endswith("cluster/zk.py")] == []


FORBIDDEN = {
    r"\bTODO\b|\bFIXME\b|\bXXX\b": "finish it, or file an issue",
    r"NotImplementedError": "no stubs",
    r"(?<![\w.])/(?:work|root|farm)/": "an absolute path of one machine",
    r"//[a-z0-9.-]*(?:maven|pypi|pythonhosted|npmjs|debian)[a-z0-9.-]*/": "a registry host",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_forbidden_words(pattern: str) -> None:
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path, text in texts()
        if path != Path(__file__)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found, f"{FORBIDDEN[pattern]}:\n" + "\n".join(found)


WORDS_SECTION = re.compile(r"^## Words$.*?(?=^## )", re.MULTILINE | re.DOTALL)


def private_words() -> list[str]:
    """Those that the first table of CONTRIBUTING.md, "Words", keeps out."""
    section = WORDS_SECTION.search((ROOT / "CONTRIBUTING.md").read_text())
    assert section is not None
    table = section.group().split("\n\n")[2]
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    return [word for row in rows for word in row.split(", ")]


def pattern_of(words: Sequence[str]) -> re.Pattern[str]:
    """Finds them as words, also in identifiers and over a line's end."""
    found = "|".join(word.replace(" ", r"[\s_]+") for word in words)
    begins = r"(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])|(?=[A-Z][a-z])"
    return re.compile(rf"(?:{begins})(?i:{found})(?![a-z])")


PRIVATE_WORDS = pattern_of(private_words())
# Kafka's names: FetchRequest's field, and the struct in it.
KAFKA_WORDS = re.compile(r"forgotten_topics_data|ForgottenTopic\b")


@pytest.mark.parametrize(
    "text", ["one", "One", "_one", "one_more", "OneMore", "noOne", "two\n  words", "two_words()"]
)
def test_words_are_recognised_in_text_and_names(text: str) -> None:
    assert pattern_of(["one", "two words"]).search(text)


@pytest.mark.parametrize("text", ["stone", "ones", "STONE", "two swords", "two  wordsmiths"])
def test_parts_of_other_words_are_not(text: str) -> None:
    assert not pattern_of(["one", "two words"]).search(text)


def test_the_table_of_words_is_read() -> None:
    assert len(private_words()) >= 15


def test_words_are_plain() -> None:
    found = []
    for path, text in texts():
        is_table = path == ROOT / "CONTRIBUTING.md"
        ours = KAFKA_WORDS.sub("", WORDS_SECTION.sub("", text) if is_table else text)
        found += [
            f"{relative(path)}:{ours.count(chr(10), 0, hit.start()) + 1}: {hit.group()!r}"
            for hit in PRIVATE_WORDS.finditer(ours)
        ]
    assert not found, "CONTRIBUTING.md, Words, says what to write instead:\n" + "\n".join(found)


def test_uv_lock_stays_out() -> None:
    assert "uv.lock" not in {p.name for p in tracked_files()}
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock, "requirements.lock carries hashes, never addresses"
    pins = re.findall(r"^[a-z0-9].*$", lock, re.M)
    assert all("==" in pin for pin in pins)
    assert lock.count("--hash=sha256:") >= len(pins)


def test_markdown_has_one_title() -> None:
    for path, text in texts():
        if path.suffix == ".md":
            body = re.sub(r"```.*?```", "", text, flags=re.S)
            titles = re.findall(r"^# .+$", body, re.M)
            assert len(titles) == 1, f"{relative(path)}: {len(titles)} titles"


def test_readme_has_exactly_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"^(make [a-z-]+)", readme, re.M))
    assert commands == {"make demo", "make test"}


def test_definitions_stay_small() -> None:
    definitions = ROOT / "pipelines/src/penstock_pipelines/definitions.py"
    assert definitions.read_text().count("\n") <= 60


def test_every_dependency_says_why() -> None:
    for distribution in DISTRIBUTIONS:
        text = (ROOT / distribution / "pyproject.toml").read_text()
        block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.M | re.S)
        assert block, distribution
        silent = [
            line.strip()
            for line in block.group(1).splitlines()
            if line.strip() and "#" not in line and "penstock-" not in line
        ]
        assert not silent, f"{distribution}/pyproject.toml: {silent}"

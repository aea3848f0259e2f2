"""Everything that is wrong with the declarations of a code location, found without services.

First every YAML file under the package's ``defs`` folder is read by itself, so that all problems of
all files are named at once: text that is not YAML, unknown component types, and what the platform's
components say about their declarations and contracts. Where that finds nothing, the definitions are
loaded as Dagster loads them, which finds what only Python can say; of that the first real error is
named, with the user's own file and line.

Contracts are then compared with the silver tables that are there, where the object store answers.

``python -m penstock_platform.components.validation MODULE RESULT`` does this in a process of its
own and writes a JSON document; ``components/definitions.py`` calls it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

import penstock_platform
from penstock_platform.problems import KeyPath, line_of, meant, place
from penstock_platform.settings import Settings
from penstock_platform.topics import declarations
from penstock_platform.topics.contract_tables import table_problems
from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.declaration import TopicSpec, collisions, node_lines

DECLARATION_FILES = ("defs.yaml", "component.yaml")
DOCUMENT_KEYS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")
PLATFORM = "penstock_platform"


@dataclass(frozen=True)
class Declared:
    """A topic that a YAML document declares. ``at``: its `file:line`."""

    spec: TopicSpec
    contract: Contract | None
    at: str


@dataclass
class Found:
    """What is wrong (a line each), what could not be looked at, and the topics declared."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    topics: list[Declared] = field(default_factory=list)


def problems_of_module(module: str) -> Found:
    """Everything that is wrong with a module that holds Dagster definitions."""
    try:
        folder = defs_folder(module)
    except (ImportError, AttributeError, ValueError) as error:
        said = f"{module}: cannot be imported: {error}; see dagster.module in penstock.toml"
        return Found([said])
    found = problems_of_folder(folder) if folder is not None else Found()
    if not found.problems:
        found.problems = problems_of_loading(module)
    if not found.problems:
        contracts = [(d.spec.name, d.contract) for d in found.topics if d.contract is not None]
        found.problems, found.notes = table_problems(Settings.load(), contracts)
    return found


def defs_folder(module: str) -> Path | None:
    """The ``defs`` folder beside the module, as Dagster's loader finds it; None without one."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ImportError(f"there is no module {module}")
    places = list(spec.submodule_search_locations or ()) or [str(Path(spec.origin or "").parent)]
    folder = Path(places[0]) / "defs"
    return folder if folder.is_dir() else None


def problems_of_folder(folder: Path) -> Found:
    """What is wrong in all YAML declarations under a folder."""
    problems: list[str] = []
    topics: list[Declared] = []
    for file in sorted(p for name in DECLARATION_FILES for p in folder.rglob(name)):
        try:
            documents = list(_documents(file.read_text()))
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            problems.append(_not_yaml(declarations.short(file), error))
            continue
        for root, value in documents:
            problems += _repeated_keys(root, declarations.short(file))
            try:
                topics += _read(value, node_lines(root), file)
            except declarations.DeclarationError as error:
                problems += str(error).splitlines()
    same = collisions([(declared.spec, declared.at) for declared in topics])
    return Found([*problems, *same], topics=topics)


def problems_of_loading(module: str) -> list[str]:
    """Load the definitions as Dagster does; the first real error, or none."""
    try:
        loaded = importlib.import_module(module)
        found = [v for v in vars(loaded).values() if isinstance(v, dg.Definitions)]
        if not found:
            return [f"{module}: holds no dagster.Definitions; assign one, as `defs = …`"]
        for definitions in found:
            dg.Definitions.validate_loadable(definitions)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        return first_real_error(error)
    return []


def first_real_error(error: BaseException) -> list[str]:
    """The platform's error of the chain, else the innermost, with the line of the user's code."""
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, declarations.DeclarationError):
            return str(link).splitlines()
    cause = chain[-1]
    if isinstance(cause, SyntaxError) and cause.filename:
        return [f"{declarations.short(Path(cause.filename))}:{cause.lineno}: {cause.msg}"]
    frames = [f for link in reversed(chain) for f in traceback.extract_tb(link.__traceback__)]
    own = [f for f in frames if not _is_installed(f.filename)]
    message = next(iter(str(cause).strip().splitlines()), "no message")
    said = f"{type(cause).__name__}: {message}"
    if not own:
        return [said]
    return [f"{declarations.short(Path(own[-1].filename))}:{own[-1].lineno}: {said}"]


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def _is_installed(file: str) -> bool:
    ours = str(Path(penstock_platform.__file__).parent)
    return "site-packages" in file or file.startswith((ours, "<", sys.base_prefix))


def _documents(text: str) -> Iterator[tuple[yaml.Node, Any]]:
    """(node, value) of every document of a YAML file that is not empty."""
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            root = loader.get_node()
            value = loader.construct_document(root) if root is not None else None
            if root is not None and value is not None:
                yield root, value
    finally:
        loader.dispose()


def _read(value: Any, lines: Mapping[KeyPath, int], file: Path) -> list[Declared]:
    """What one document declares. Raises DeclarationError with everything wrong in it."""
    name = declarations.short(file)
    where = place(name, lines.get(()))
    if not isinstance(value, Mapping):
        raise declarations.DeclarationError(f"{where}: expected the keys type and attributes")
    problems = [
        f"{place(name, line_of(lines, (str(key),)))}: {key} is not a key here"
        f"{meant(str(key), DOCUMENT_KEYS)}"
        for key in value
        if key not in DOCUMENT_KEYS
    ]
    component = None
    try:
        component = _component(value.get("type"), place(name, line_of(lines, ("type",))))
    except declarations.DeclarationError as error:
        problems.append(str(error))
    read = getattr(component, "read", None)
    if value.get("template_vars_module"):
        read = None  # its templates need names that loading alone knows
    below = {path[1:]: line for path, line in lines.items() if path[:1] == ("attributes",)}
    scope = dg.ResolutionContext.default().scope
    source = declarations.Source(name, file.parent, below or {(): lines[()]}, scope)
    if read is None or not isinstance(value.get("attributes") or {}, Mapping):
        if problems:
            raise declarations.DeclarationError("\n".join(problems))
        return []
    try:
        found = read(value.get("attributes") or {}, source)
    except declarations.DeclarationError as error:
        raise declarations.DeclarationError("\n".join([*problems, str(error)])) from None
    if problems:
        raise declarations.DeclarationError("\n".join(problems))
    spec, contract = found if isinstance(found, tuple) else (found, None)
    return [Declared(spec, contract, source.at())] if isinstance(spec, TopicSpec) else []


def _component(kind: object, where: str) -> Any:
    """The class of a component type of the platform; None for any other's."""
    if not isinstance(kind, str):
        raise declarations.DeclarationError(
            f"{where}: type is missing; add it, as `type: {PLATFORM}.TopicComponent`"
        )
    components = (name for name in penstock_platform.__all__ if name.endswith("Component"))
    known = [f"{PLATFORM}.{name}" for name in components]
    if kind in known:
        return getattr(penstock_platform, kind.rpartition(".")[2])
    if kind.startswith(f"{PLATFORM}."):
        raise declarations.DeclarationError(
            f"{where}: {kind} is not a component{meant(kind, known)}"
        )
    return None


def _repeated_keys(root: yaml.Node, name: str) -> list[str]:
    """Keys that occur twice in one mapping: YAML readers keep the last without an error."""
    problems: list[str] = []

    def walk(node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in seen:
                        problems.append(
                            f"{place(name, line)}: {key.value} is there twice, first in line "
                            f"{seen[key.value]}; keep one"
                        )
                    seen.setdefault(key.value, line)
                walk(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                walk(value)

    walk(root)
    return problems


def _not_yaml(name: str, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else None
    said = getattr(error, "problem", None) or getattr(error, "strerror", None) or str(error)
    if isinstance(error, UnicodeDecodeError):
        said = "it is not UTF-8 text"
    return f"{place(name, line)}: not YAML: {said}"


def main(module: str, result: str) -> None:
    found = problems_of_module(module)
    topics = [declared.spec.name for declared in found.topics]
    document = {"problems": found.problems, "notes": found.notes, "topics": topics}
    Path(result).write_text(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Reading a component's YAML so that every mistake is named with its file and line.

Dagster gives a component its attributes and the position of each key. The platform's own models
validate them (``model.declaration.parse_topic``), because they know the remedy; this module
combines both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import dagster as dg
from pydantic import BaseModel, ConfigDict, ValidationError

from penstock_platform.problems import KeyPath, line_of, place, problems_of
from penstock_platform.topics.templates import resolve
from penstock_platform.topics.yaml_schema import attributes_schema

M = TypeVar("M", bound=BaseModel)
OWNER = "team:penstock"  # of the component types, in `dg list components`


class DeclarationError(dg.DagsterInvalidDefinitionError):
    """A declaration that cannot be used: file, line, key, what was found and what would do."""


def attributes_model(name: str, described_by: type[BaseModel]) -> type[BaseModel]:
    """A model that takes any keys and shows ``described_by``'s JSON schema to editors and `dg`.

    Judging is left to ``load``, which can name the line in a sentence of its own.
    """

    def schema(document: dict[str, Any]) -> None:
        document.clear()
        document.update(attributes_schema(described_by))

    config = ConfigDict(extra="allow", json_schema_extra=schema)
    return type(name, (BaseModel,), {"model_config": config, "__module__": __name__})


def values_of(attributes: BaseModel | None) -> dict[str, Any]:
    """The raw attributes as they are in the YAML document."""
    return dict(attributes.model_extra or {}) if attributes is not None else {}


@dataclass(frozen=True)
class Source:
    """Where a declaration was read: its file, its folder, the 1-based line of every key, and the
    names that its templates may use beside ``env``."""

    file: str
    folder: Path
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict)

    def at(self, *path: str | int) -> str:
        """`file:line` of a key, or of the nearest one above it."""
        return place(self.file, line_of(self.lines, path))


def source_of(context: dg.ComponentLoadContext) -> Source:
    """The source of what Dagster loads."""
    resolution = context.resolution_context
    tree = resolution.source_position_tree
    folder = context.path if context.path.is_dir() else context.path.parent
    path = Path(tree.position.filename) if tree is not None else context.path
    return Source(short(path), folder, lines_in(tree), resolution.scope)


def lines_in(tree: Any) -> dict[KeyPath, int]:
    """1-based lines of every key path under ``attributes`` of a document's positions."""
    attributes = tree.children.get("attributes") if tree is not None else None
    return dict(_walk(attributes, ())) if attributes is not None else {}


def short(path: Path) -> str:
    """A path, as short as it can be written from where the command runs."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def parse(model: type[M], values: Mapping[str, Any], source: Source) -> M:
    """Resolve a declaration's templates and validate it; raises DeclarationError with a line for
    each of its problems."""
    found, unresolved = resolve(dict(values), source.scope)
    problems = [
        f"{source.at(*path)}: {'.'.join(map(str, path))}: {said}"
        for path, said in unresolved.items()
    ]
    try:
        declared = model.model_validate(found)
    except ValidationError as error:
        problems += problems_of(error, model, source.file, source.lines, known=unresolved)
    if problems:
        # Outside of ``except``: Dagster shows the innermost cause, and this says more than it.
        raise DeclarationError("\n".join(problems))
    return declared


class DeclaredComponent(dg.Component):
    """A component that is declared in YAML: what `dg` asks of its type, and how it is loaded."""

    ATTRIBUTES: ClassVar[type[BaseModel]]
    TAGS: ClassVar[Sequence[str]]
    PRODUCES: ClassVar[Sequence[str]]
    """Kinds of definitions, for `dg list components`."""

    @abstractmethod
    def __init__(self, declared: Any) -> None:
        """``declared``: what :meth:`read` made of the attributes."""

    @classmethod
    @abstractmethod
    def read(cls, values: Mapping[str, Any], source: Source) -> Any:
        """What the attributes declare. Raises DeclarationError with file and line of every
        problem."""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return cls.ATTRIBUTES

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description=cls.__doc__, tags=[*cls.TAGS], owners=[OWNER], produces=[*cls.PRODUCES]
        )

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Raises DeclarationError, as ``read``."""
        return cls(cls.read(values_of(attributes), source_of(context)))


def place_in_project(context: dg.ComponentLoadContext) -> str:
    """`file:line` of the declaration, from the project's root: the same on every machine."""
    declared_at = source_of(context).at()
    root = f"{context.project_root}/"
    absolute = declared_at if declared_at.startswith("/") else str(Path.cwd() / declared_at)
    return absolute.removeprefix(root)


def _walk(tree: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    yield path, tree.position.start.line
    for key, child in tree.children.items():
        yield from _walk(child, (*path, key))

"""What a message class is made of: kinds of values, and fields with their version ranges.

A `Struct` subclass lists its fields in wire order. The metaclass turns them into slots and a
keyword-only constructor; `schema.py` compiles decoders and encoders from the same list.
Versions are Kafka's: a field exists in `since <= version <= until`, a tagged field only in
flexible versions, a nullable field may be null from `nullable_since` on.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar, Final, dataclass_transform

UUID_ZERO: Final = uuid.UUID(int=0)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Kind:
    """A primitive of the protocol: `code` is its struct letter where the size is fixed."""

    name: str
    zero: Any
    code: str = ""
    size: int = 0


BOOL: Final = Kind("bool", False, "?", 1)
INT8: Final = Kind("int8", 0, "b", 1)
INT16: Final = Kind("int16", 0, "h", 2)
UINT16: Final = Kind("uint16", 0, "H", 2)
INT32: Final = Kind("int32", 0, "i", 4)
UINT32: Final = Kind("uint32", 0, "I", 4)
INT64: Final = Kind("int64", 0, "q", 8)
FLOAT64: Final = Kind("float64", 0.0, "d", 8)
UUID: Final = Kind("uuid", UUID_ZERO, "16s", 16)
STRING: Final = Kind("string", "")
BYTES: Final = Kind("bytes", b"")
RECORDS: Final = Kind("records", None)  # decoded as a memoryview slice, never copied


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array of primitives or of structs."""

    element: Kind | type[Struct]


Type = Kind | ArrayOf | type["Struct"]


@dataclass(slots=True)
class Field:
    """One field of a struct; `name` is filled in by the metaclass."""

    type: Type
    since: int
    until: int | None
    nullable_since: int | None
    tag: int | None
    default: Any
    name: str = ""

    def present(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    def absent_value(self) -> Any:
        """The value that a decoded message has where its version lacks the field."""
        if self.default is not REQUIRED:
            return self.default
        if isinstance(self.type, Kind):
            return self.type.zero
        return () if isinstance(self.type, ArrayOf) else None


def field(
    type: Kind | type[Struct],  # noqa: A002
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: Any = REQUIRED,
) -> Any:
    """Declare a primitive or struct field. Without `default` the constructor demands it.

    A tagged struct that the peer left out decodes as None.
    """
    return Field(type, since, until, nullable_since, tag, default)


def array(
    element: Kind | type[Struct],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: Any = REQUIRED,
) -> Any:
    """Declare an array field; `default=()` means a new empty list."""
    return Field(ArrayOf(element), since, until, nullable_since, tag, default)


def _constructor(name: str, fields: tuple[Field, ...]) -> Any:
    """Build `__init__`: keyword-only, straight assignments, a fresh list for each `()` default."""
    namespace: dict[str, Any] = {}
    parameters, body = [], []
    for entry in fields:
        if entry.default is REQUIRED:
            parameters.append(entry.name)
            body.append(f"self.{entry.name} = {entry.name}")
        else:
            namespace[f"d_{entry.name}"] = entry.default
            parameters.append(f"{entry.name}=d_{entry.name}")
            value = f"[] if {entry.name} == () else {entry.name}"
            body.append(f"self.{entry.name} = {value if entry.default == () else entry.name}")
    signature = "self, *, " + ", ".join(parameters) if parameters else "self"
    source = f"def __init__({signature}):\n    " + "\n    ".join(body or ["pass"])
    exec(compile(source, f"<constructor of {name}>", "exec"), namespace)
    return namespace["__init__"]


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(field, array))
class StructType(type):
    """Collects the fields of a class body into slots, in order, and writes its constructor."""

    fields: tuple[Field, ...]
    versions: range
    flexible_from: int | None

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: range | None = None,
        flexible_from: int | None = None,
    ) -> StructType:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(entry.name for entry in fields)
        namespace["__init__"] = _constructor(name, tuple(fields))
        created = super().__new__(cls, name, bases, namespace)
        created.fields = tuple(fields)
        created.versions = range(0) if versions is None else versions
        created.flexible_from = flexible_from
        if versions is not None:
            _inherit(created, versions, flexible_from)
        return created

    def __init__(cls, name: str, bases: Any, namespace: Any, **_: Any) -> None:
        super().__init__(name, bases, namespace)


def _inherit(owner: StructType, versions: range, flexible_from: int | None) -> None:
    """Give nested structs their message's versions, so that one can be encoded on its own."""
    for entry in owner.fields:
        nested = entry.type.element if isinstance(entry.type, ArrayOf) else entry.type
        if isinstance(nested, StructType) and not nested.versions:
            nested.versions = versions
            nested.flexible_from = flexible_from
            _inherit(nested, versions, flexible_from)


class Struct(metaclass=StructType):
    """Base of every message and nested struct. Equal when all fields are."""

    fields: ClassVar[tuple[Field, ...]]
    versions: ClassVar[range]
    flexible_from: ClassVar[int | None]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).fields)
        return f"{type(self).__name__}({values})"

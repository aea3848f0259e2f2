"""Compiles a struct at a version into one straight-line encoding function.

Runs of fixed-size fields become one `pack` together with the length prefix that follows them.
Records are not touched except through `len()`: the function returns the message as a list of
parts, byte chunks with the records objects in between as they were given, so that a server can
send a slice of a file in their place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock_broker.wire.fields import (
    BOOL,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    Field,
    Kind,
    Struct,
    Type,
)
from penstock_broker.wire.primitives import SHORT_UVARINTS, write_uvarint

Encoder = Callable[[Any], list[Any]]

SHORT_ARRAY_MAX: Final = 16


def _short_arrays(code: str, flexible: bool) -> tuple[Callable[..., bytes], ...]:
    """Packers of (length prefix, elements...) for short arrays of a fixed-size primitive."""
    prefix = "B" if flexible else "i"
    return tuple(struct.Struct(f">{prefix}{n}{code}").pack for n in range(SHORT_ARRAY_MAX))


def _long_array(code: str, flexible: bool) -> Callable[[Any], bytes]:
    def encode(values: Any) -> bytes:
        count = len(values)
        prefix = write_uvarint(count + 1) if flexible else struct.pack(">i", count)
        return prefix + struct.pack(f">{count}{code}", *values)

    return encode


class _Builder:
    """Writes the source of one encoder."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 1
        self.pending: list[tuple[str, str]] = []  # struct letter, expression ("" for a pad byte)
        self.serial = 0
        self.namespace: dict[str, Any] = {
            "uvarint": write_uvarint,
            "short_uvarint": SHORT_UVARINTS,
            "join": b"".join,
        }

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def constant(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str | bytes | float):
            return repr(value)
        name = self.fresh("c")
        self.namespace[name] = value
        return name

    def packed(self, extra: tuple[str, str] | None = None) -> str:
        """The expression that packs the pending run (and one value more)."""
        run = [*self.pending, extra] if extra else self.pending
        letters = "".join(letter for letter, _ in run)
        layout = struct.Struct(">" + letters)
        if letters == "x" * len(letters):
            return repr(layout.pack())
        name = f"pack_{letters.replace('?', 'o')}"
        self.namespace[name] = layout.pack
        return f"{name}({', '.join(expression for _, expression in run if expression)})"

    def flush(self) -> None:
        if self.pending:
            self.emit(f"append({self.packed()})")
            self.pending.clear()

    def length(self, size: str, fixed: str) -> None:
        """Write a length prefix from a variable that holds -1 for null."""
        if not self.flexible:
            self.pending.append((fixed, size))
            self.flush()
            return
        self.emit(f"if {size} < 127:")
        if self.pending:
            self.emit(f"    append({self.packed(('B', f'{size} + 1'))})")
        else:
            self.emit(f"    append(short_uvarint[{size} + 1])")
        self.emit("else:")
        if self.pending:
            self.emit(f"    append({self.packed()})")
        self.emit(f"    append(uvarint({size} + 1))")
        self.pending.clear()

    def sized(self, kind: Kind, source: str, nullable: bool) -> None:
        raw, size = self.fresh("b"), self.fresh("n")
        encoded = ".encode()" if kind is STRING else ""
        if nullable or kind is RECORDS:
            self.emit(f"{raw} = {source}")
            self.emit(f"if {raw} is None:")
            self.emit(f"    {size} = -1")
            self.emit(f"    {raw} = b''")
            self.emit("else:")
            if encoded:
                self.emit(f"    {raw} = {raw}{encoded}")
            self.emit(f"    {size} = len({raw})")
        else:
            self.emit(f"{raw} = {source}{encoded}")
            self.emit(f"{size} = len({raw})")
        self.length(size, "h" if kind is STRING else "i")
        if kind is RECORDS:
            self.emit(f"if {size} > 0:")
            self.emit("    parts.append(join(out))")
            self.emit(f"    parts.append({raw})")
            self.emit("    out = []")
            self.emit("    append = out.append")
        else:
            self.emit(f"append({raw})")

    def value(self, kind: Type, source: str, nullable: bool) -> None:
        if isinstance(kind, ArrayOf):
            self.array(kind, source, nullable)
        elif not isinstance(kind, Kind):
            local = self.fresh("o")
            self.emit(f"{local} = {source}")
            if nullable:
                self.nullable_struct(kind, local)
            else:
                self.struct(kind, local)
        elif kind is UUID:
            self.pending.append((kind.code, f"{source}.bytes"))
        elif kind.size:
            self.pending.append((kind.code, source))
        else:
            self.sized(kind, source, nullable)

    def nullable_struct(self, kind: type[Struct], local: str) -> None:
        self.flush()
        self.emit(f"if {local} is None:")
        self.emit("    append(b'\\xff')")
        self.emit("else:")
        self.depth += 1
        self.emit("append(b'\\x01')")
        self.struct(kind, local)
        self.flush()
        self.depth -= 1

    def array(self, kind: ArrayOf, source: str, nullable: bool) -> None:
        items = self.fresh("a")
        self.emit(f"{items} = {source}")
        element = kind.element
        if isinstance(element, Kind) and element.size and element is not UUID and not nullable:
            self.flush()
            short, long = f"short_{element.name}", f"long_{element.name}"
            self.namespace[short] = _short_arrays(element.code, self.flexible)
            self.namespace[long] = _long_array(element.code, self.flexible)
            size = self.fresh("n")
            self.emit(f"{size} = len({items})")
            self.emit(f"if {size} < {SHORT_ARRAY_MAX}:")
            prefix = f"{size} + 1" if self.flexible else size
            self.emit(f"    append({short}[{size}]({prefix}, *{items}))")
            self.emit("else:")
            self.emit(f"    append({long}({items}))")
            return
        size = self.fresh("n")
        if nullable:
            self.emit(f"if {items} is None:")
            self.emit(f"    {size} = -1")
            self.emit(f"    {items} = ()")
            self.emit("else:")
            self.emit(f"    {size} = len({items})")
        else:
            self.emit(f"{size} = len({items})")
        self.length(size, "i")
        item = self.fresh("v")
        self.emit(f"for {item} in {items}:")
        self.depth += 1
        if isinstance(element, type):
            self.struct(element, item)
        else:
            self.value(element, item, False)
        self.flush()
        self.depth -= 1

    def struct(self, cls: type[Struct], local: str) -> None:
        tagged: list[Field] = []
        for entry in cls.fields:
            if not entry.present(self.version):
                continue
            if entry.tag is not None:
                tagged.append(entry)
                continue
            source = f"{local}.{entry.name}"
            nullable = entry.nullable(self.version)
            if entry.type is STRING and entry.nullable_since is not None and not nullable:
                source = f"({source} or '')"  # null is not there yet in this version
            self.value(entry.type, source, nullable)
        if self.flexible:
            if tagged:
                self.tags(local, sorted(tagged, key=lambda entry: entry.tag or 0))
            else:
                self.pending.append(("x", ""))

    def tags(self, local: str, tagged: list[Field]) -> None:
        """Write the tagged fields that differ from their defaults."""
        self.flush()
        found = self.fresh("t")
        self.emit(f"{found} = []")
        for entry in tagged:
            value = self.fresh("g")
            encode = self.fresh("encode_tag")
            self.namespace[encode] = _compile_value(entry, self.version)
            self.emit(f"{value} = {local}.{entry.name}")
            default = entry.absent_value()
            if isinstance(entry.type, ArrayOf):
                condition = f"{value}"
            elif entry.type is BOOL:
                condition = f"{value} is not {default!r}"
            elif default is None:
                condition = f"{value} is not None"
            else:
                condition = f"{value} != {self.constant(default)}"
            self.emit(f"if {condition}:")
            self.emit(f"    {value} = {encode}({value})")
            head = self.constant(write_uvarint(entry.tag or 0))
            self.emit(f"    {found}.append({head} + uvarint(len({value})) + {value})")
        self.emit(f"append(uvarint(len({found})))")
        self.emit(f"out.extend({found})")

    def function(self, name: str, result: str) -> Any:
        source = "\n".join(
            [
                f"def {name}(value):",
                "    parts = []",
                "    out = []",
                "    append = out.append",
                *self.lines,
                f"    {result}",
            ]
        )
        exec(compile(source, f"<{name} v{self.version}>", "exec"), self.namespace)
        function = self.namespace[name]
        function.source = source
        return function


def _compile_value(entry: Field, version: int) -> Callable[[Any], bytes]:
    """Encode the content of one tagged field to bytes."""
    builder = _Builder(version, flexible=True)
    builder.value(entry.type, "value", entry.nullable(version))
    builder.flush()
    function: Callable[[Any], bytes] = builder.function("encode_tag", "return join(out)")
    return function


def _has_records(cls: type[Struct], version: int) -> bool:
    for entry in cls.fields:
        if not entry.present(version):
            continue
        nested = entry.type.element if isinstance(entry.type, ArrayOf) else entry.type
        if nested is RECORDS or (isinstance(nested, type) and _has_records(nested, version)):
            return True
    return False


def compile_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """Build `encode(message) -> parts`: one chunk of bytes, or chunks around records objects."""
    builder = _Builder(version, flexible)
    builder.struct(cls, "value")
    builder.flush()
    if _has_records(cls, version):
        builder.emit("if out:")
        builder.emit("    parts.append(join(out))")
        result = "return parts"
    else:
        result = "return [join(out)]"
    function: Encoder = builder.function("encode", result)
    return function

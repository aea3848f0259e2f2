"""Compiles a struct at a version into one straight-line decoding function.

All nesting is inlined: arrays become loops, runs of fixed-size fields one `unpack_from`, which
also takes the length prefix (or the tag count) that follows the run. The source of a compiled
function is kept as `function.source` for reading and debugging.

Every length is checked against the bytes that remain before anything is allocated for it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.fields import (
    BYTES,
    STRING,
    UUID,
    ArrayOf,
    Field,
    Kind,
    Struct,
    Type,
)
from penstock_broker.wire.primitives import (
    ELEMENTS_MAX,
    read_uvarint,
    read_uvarint_rest,
    skip_tags,
)

Decoder = Callable[[Any, int], tuple[Any, int]]


def minimum_size(kind: Type, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this type can take."""
    if isinstance(kind, Kind):
        if kind.size:
            return kind.size
        return 1 if flexible else (2 if kind is STRING else 4)
    if isinstance(kind, ArrayOf):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for entry in kind.fields:
        if entry.present(version) and entry.tag is None:
            nullable_struct = isinstance(entry.type, type) and entry.nullable(version)
            total += 1 if nullable_struct else minimum_size(entry.type, version, flexible)
    return total


def _uuid(raw: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=raw)


class _Builder:
    """Writes the source of one decoder."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 2
        self.pending: list[tuple[str, str]] = []  # struct letter, assignment target
        self.serial = 0
        self.namespace: dict[str, Any] = {
            "DecodeError": DecodeError,
            "ELEMENTS_MAX": ELEMENTS_MAX,
            "new": object.__new__,
            "uvarint": read_uvarint,
            "uvarint_rest": read_uvarint_rest,
            "skip_tags": skip_tags,
            "unpack_from": struct.unpack_from,
            "Error": (struct.error, IndexError, ValueError, OverflowError),
            "uuid": _uuid,
            "where": f"{cls.__name__} v{version}",
        }

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def constant(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str | bytes | float):
            return repr(value)
        if value == ():
            return "[]"
        name = self.fresh("c")
        self.namespace[name] = value
        return name

    def flush(self) -> None:
        """Emit one unpack for the run of fixed-size values gathered so far."""
        if not self.pending:
            return
        letters = "".join(letter for letter, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        if letters == "B":
            self.emit(f"{targets} = buf[pos]")
            self.emit("pos += 1")
        else:
            layout = struct.Struct(">" + letters)
            name = f"unpack_{letters.replace('?', 'o')}"
            self.namespace[name] = layout.unpack_from
            self.emit(f"{targets}{',' if len(self.pending) == 1 else ''} = {name}(buf, pos)")
            self.emit(f"pos += {layout.size}")
        self.pending.clear()

    def raise_if(self, condition: str, what: str) -> None:
        self.emit(f"if {condition}:")
        self.emit(f"    raise DecodeError({what!r})")

    def length(self, fixed: str) -> str:
        """Read a length prefix; afterwards the variable is -1 for null."""
        size = self.fresh("n")
        if not self.flexible:
            self.pending.append((fixed, size))
            self.flush()
            return size
        self.pending.append(("B", size))
        self.flush()
        self.emit(f"if {size} > 127:")
        self.emit(f"    {size}, pos = uvarint_rest(buf, pos, {size})")
        self.emit(f"{size} -= 1")
        return size

    def sized(self, kind: Kind, target: str, nullable: bool) -> None:
        """A string, bytes or records value."""
        size = self.length("h" if kind is STRING else "i")
        self.emit(f"if {size} < 0:")
        if nullable:
            self.raise_nested(f"{size} != -1", "negative length")
            self.emit(f"    {target} = None")
        else:
            self.emit(f"    raise DecodeError('null or negative length: {kind.name}')")
        self.emit("else:")
        self.depth += 1
        self.emit(f"end = pos + {size}")
        self.raise_if("end > limit", f"{kind.name} runs past the end")
        if kind is STRING:
            self.emit(f"{target} = str(buf[pos:end], 'utf-8')")
        elif kind is BYTES:
            self.emit(f"{target} = bytes(buf[pos:end])")
        else:
            self.emit(f"{target} = buf[pos:end]")
        self.emit("pos = end")
        self.depth -= 1

    def raise_nested(self, condition: str, what: str) -> None:
        self.depth += 1
        self.raise_if(condition, what)
        self.depth -= 1

    def value(self, kind: Type, target: str, nullable: bool) -> None:
        """Read one value into `target`; fixed-size ones join the pending run."""
        if isinstance(kind, ArrayOf):
            self.array(kind, target, nullable)
        elif not isinstance(kind, Kind):
            if nullable:
                self.nullable_struct(kind, target)
            else:
                self.struct(kind, target)
        elif kind is UUID:
            raw = self.fresh("u")
            self.pending.append((kind.code, raw))
            self.flush()
            self.emit(f"{target} = uuid({raw})")
        elif kind.size:
            self.pending.append((kind.code, target))
        else:
            self.sized(kind, target, nullable)

    def nullable_struct(self, kind: type[Struct], target: str) -> None:
        """KIP-893: one byte says whether the struct follows."""
        marker = self.fresh("m")
        self.pending.append(("b", marker))
        self.flush()
        self.emit(f"if {marker} < 0:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        self.depth += 1
        self.struct(kind, target)
        self.flush()
        self.depth -= 1

    def array(self, kind: ArrayOf, target: str, nullable: bool) -> None:
        count = self.length("i")
        items = self.fresh("a")
        self.emit(f"if {count} < 0:")
        if nullable:
            self.raise_nested(f"{count} != -1", "negative array length")
            self.emit(f"    {items} = None")
        else:
            self.emit("    raise DecodeError('null or negative array')")
        self.emit("else:")
        self.depth += 1
        smallest = max(1, minimum_size(kind.element, self.version, self.flexible))
        self.emit(f"budget -= {count}")
        self.raise_if(f"budget < 0 or {count} * {smallest} > limit - pos", "array too long")
        element = kind.element
        if isinstance(element, Kind) and element.size and element is not UUID:
            self.emit(f"{items} = list(unpack_from(f'>{{{count}}}{element.code}', buf, pos))")
            self.emit(f"pos += {count} * {element.size}")
        else:
            self.emit(f"{items} = []")
            self.emit(f"for _ in range({count}):")
            self.depth += 1
            item = self.fresh("o" if isinstance(element, type) else "v")
            self.value(element, item, False)
            self.flush()
            self.emit(f"{items}.append({item})")
            self.depth -= 1
        self.depth -= 1
        self.emit(f"{target} = {items}")

    def struct(self, cls: type[Struct], target: str) -> None:
        owner = self.fresh("s")
        name = f"cls_{cls.__name__}"
        self.namespace[name] = cls
        self.emit(f"{owner} = new({name})")
        tagged: list[Field] = []
        for entry in cls.fields:
            attribute = f"{owner}.{entry.name}"
            if not entry.present(self.version) or (entry.tag is not None and not self.flexible):
                self.emit(f"{attribute} = {self.constant(entry.absent_value())}")
            elif entry.tag is not None:
                self.emit(f"{attribute} = {self.constant(entry.absent_value())}")
                tagged.append(entry)
            else:
                self.value(entry.type, attribute, entry.nullable(self.version))
        if self.flexible:
            self.tags(owner, tagged)
        self.flush()
        self.emit(f"{target} = {owner}")

    def tags(self, owner: str, tagged: list[Field]) -> None:
        count = self.fresh("t")
        self.pending.append(("B", count))
        self.flush()
        self.emit(f"if {count}:")
        self.depth += 1
        if not tagged:
            self.emit(f"pos, budget = skip_tags(buf, pos, {count}, budget)")
            self.depth -= 1
            return
        tag, end = self.fresh("g"), self.fresh("e")
        self.emit(f"if {count} > 127:")
        self.emit(f"    {count}, pos = uvarint_rest(buf, pos, {count})")
        self.emit(f"budget -= {count}")
        self.raise_if("budget < 0", "too many tagged fields")
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, pos = uvarint(buf, pos)")
        self.emit(f"{end}, pos = uvarint(buf, pos)")
        self.emit(f"{end} += pos")
        self.raise_if(f"{end} > limit", "tagged field runs past the end")
        for position, entry in enumerate(tagged):
            self.emit(f"{'el' if position else ''}if {tag} == {entry.tag}:")
            self.depth += 1
            self.value(entry.type, f"{owner}.{entry.name}", entry.nullable(self.version))
            self.flush()
            self.raise_if(f"pos != {end}", "tagged field of the wrong size")
            self.depth -= 1
        self.emit("else:")
        self.emit(f"    pos = {end}")
        self.depth -= 2


def compile_decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    """Build `decode(buffer, position) -> (message, position after it)`."""
    builder = _Builder(cls, version, flexible)
    builder.struct(cls, "result")
    source = "\n".join(
        [
            "def decode(buf, pos):",
            "    limit = len(buf)",
            "    budget = ELEMENTS_MAX",
            "    try:",
            *builder.lines,
            "    except DecodeError as cause:",
            "        raise DecodeError(f'{where}: {cause}') from None",
            "    except Error as cause:",
            "        raise DecodeError(f'{where}: {cause}') from cause",
            "    return result, pos",
        ]
    )
    exec(compile(source, f"<decoder of {cls.__name__} v{version}>", "exec"), builder.namespace)
    decode: Decoder = builder.namespace["decode"]
    decode.source = source  # type: ignore[attr-defined]
    return decode

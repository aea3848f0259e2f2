"""Principals of connections, and the mapping of certificates' names to users.

A certificate's subject is read from its DER encoding and written as Java writes it
(``X500Principal.getName()``, RFC 2253): most specific part first, ``CN``, ``OU``, ``O``, ``L``,
``ST``, ``C``, ``STREET``, ``DC`` and ``UID`` by keyword, anything else by its number with its value
in hexadecimal. ACLs and mapping rules written for Apache Kafka mean the same users here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

ANONYMOUS = "User:ANONYMOUS"

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ENCODINGS = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}
_CONTEXT_0 = 0xA0


class CertificateError(ValueError):
    """A certificate that cannot be read."""


def user(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"


def parse_super_users(text: str) -> frozenset[str]:
    """``User:alice;User:bob``, as in ``super.users``. ValueError."""
    names = [part.strip() for part in text.split(";")]
    for name in names:
        if name and not all(name.partition(":")):
            raise ValueError(f"super.users: {name!r} is not of the form User:name")
    return frozenset(name for name in names if name)


# -- certificates -------------------------------------------------------------------------------


def subject_of(certificate: bytes) -> str:
    """The distinguished name of a DER certificate's subject, as Java prints it."""
    try:
        ((_, body),) = _items(certificate, 1)
        (_, signed), *_rest = _items(body)
        fields = _items(signed)
        skip = 1 if fields[0][0] == _CONTEXT_0 else 0
        # version, serial number, algorithm, issuer, validity, subject, …
        return _name(fields[skip + 4][1])
    except (IndexError, ValueError) as error:
        raise CertificateError(f"a certificate's subject cannot be read: {error}") from error


def _name(body: bytes) -> str:
    parts = [
        "+".join(_attribute(pair) for _, pair in _items(relative)) for _, relative in _items(body)
    ]
    return ",".join(reversed(parts))


def _attribute(pair: bytes) -> str:
    (_, number), (tag, value) = _items(pair)
    name = _number(number)
    keyword = _KEYWORDS.get(name)
    if keyword is None or tag not in _ENCODINGS:
        return f"{keyword or name}=#{_encoded(tag, value).hex()}"
    return f"{keyword}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _escaped(text: str) -> str:
    """What would be read as syntax gets a backslash, and so does each space at either end."""
    bare = text.strip(" ")
    left = len(text) - len(text.lstrip(" "))
    right = len(text) - left - len(bare)
    middle = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", bare).replace("\0", "\\00")
    return "\\ " * left + middle + "\\ " * right


def _items(data: bytes, most: int = 1 << 10) -> list[tuple[int, bytes]]:
    """The (tag, content) pairs of a DER sequence's content. ValueError, IndexError."""
    found: list[tuple[int, bytes]] = []
    position = 0
    while position < len(data) and len(found) < most:
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length that DER does not have")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + size > len(data):
            raise ValueError("cut short")
        found.append((tag, data[position : position + size]))
        position += size
    return found


def _encoded(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + value


def _number(data: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# -- mapping rules --------------------------------------------------------------------------------

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)

Mapping = Callable[[str], str]


def parse_mapping_rules(text: str) -> Mapping:
    """``ssl.principal.mapping.rules`` as a function from a distinguished name to a user's name.

    ``DEFAULT`` keeps the name as it is. ``RULE:pattern/replacement/[LU]`` matches the whole name
    (KIP-371); ``$1`` in the replacement is the first group; L and U make it lower or upper case.
    The first rule that fits decides; without one it is a :class:`CertificateError`. ValueError for
    rules that cannot be read.
    """
    rules: list[tuple[re.Pattern[str] | None, str, str]] = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(f"Invalid rule: {text[position:]!r}, in ssl.principal.mapping.rules")
        try:
            pattern = None if found[1] else re.compile(found[2])
        except re.error as error:
            raise ValueError(f"ssl.principal.mapping.rules: {found[2]}: {error}") from error
        rules.append((pattern, _python_template(found[3] or ""), found[4]))
        position = found.end()
        separator = re.compile(r"\s*(?:,\s*|$)").match(text, position)
        if separator is None:
            raise ValueError(f"Invalid rule: {text[position:]!r}, in ssl.principal.mapping.rules")
        position = separator.end()

    def apply(name: str) -> str:
        for pattern, template, case in rules:
            if pattern is None:
                return name
            match = pattern.fullmatch(name)
            if match is not None:
                mapped = match.expand(template)
                return {"L": mapped.lower(), "U": mapped.upper()}.get(case, mapped)
        raise CertificateError(f"no rule of ssl.principal.mapping.rules applies to {name}")

    return apply if rules else lambda name: name


def _python_template(java: str) -> str:
    """Java's replacement (``$1``, backslash escapes) as Python's."""
    out = []
    position = 0
    while position < len(java):
        char = java[position]
        if char == "$" and java[position + 1 : position + 2].isdigit():
            out.append(f"\\g<{java[position + 1]}>")
            position += 2
            continue
        if char == "\\":  # never the last one: the form of a rule sees to that
            position += 1
            char = java[position]
        out.append("\\\\" if char == "\\" else char)
        position += 1
    return "".join(out)

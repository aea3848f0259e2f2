"""Certificates' names as Java writes them, and the rules that make users of them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.security.principals import (
    ANONYMOUS,
    CertificateError,
    _items,
    _name,
    parse_mapping_rules,
    parse_super_users,
    subject_of,
    user,
)

# DER of names, and what java.security's X500Principal.getName() made of them.
JAVA = [
    (
        "303a310b300906035504070c02237831163014060355040a130d206c656164202074726169"
        "6c203113301106035504030c0a613d6223632c20642b65",
        r"CN=a\=b\#c\, d\+e,O=\ lead  trail\ ,L=\#x",
    ),
    ("30193117301506035504030c0e4ac3bc7267656e5c7822793c3e3b", 'CN=Jürgen\\\\x\\"y\\<\\>\\;'),
    (
        "306e310e300c060355040c13057469746c653111300f060a0992268993f22c640119160164"
        "3111300f060a0992268993f22c640101130175310a30080603550409130173311430080603550403130178"
        "3008060355040b1301793114301206092a864886f70d01090116056140622e63",
        "1.2.840.113549.1.9.1=#16056140622e63,CN=x+OU=y,STREET=s,UID=u,DC=d,"
        "2.5.4.12=#13057469746c65",
    ),
    ("30123110300e06035504031307202074776f2020", r"CN=\ \ two\ \ "),
]


@pytest.mark.parametrize(("der", "name"), JAVA)
def test_names_are_written_as_java_writes_them(der: str, name: str) -> None:
    assert _name(_items(bytes.fromhex(der))[0][1]) == name


def test_the_subject_of_a_certificate(authority: Any, alice_pem: Path) -> None:
    text = alice_pem.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])
    assert subject_of(certificate) == "CN=alice,OU=tests"


# How DER writes lengths (X.690, 8.1.3).
LENGTHS = {
    0: "00",
    126: "7e",
    127: "7f",
    128: "8180",
    255: "81ff",
    256: "820100",
    65_536: "83010000",
}


def der(tag: int, *contents: bytes) -> bytes:
    """One element; of a length below 128, or one of LENGTHS."""
    content = b"".join(contents)
    size = len(content)
    return bytes([tag]) + bytes.fromhex(LENGTHS.get(size, f"{size:02x}")) + content


def attribute(number: str, value: bytes) -> bytes:
    """A name of one attribute; the number (object identifier) as hexadecimal bytes."""
    return der(0x31, der(0x30, der(6, bytes.fromhex(number)), value))


CN = "550403"


@pytest.mark.parametrize(
    ("number", "dotted"),
    [
        ("27", "0.39"),
        ("28", "1.0"),
        ("2a7f", "1.2.127"),
        ("2a8100", "1.2.128"),
        ("2a818000", "1.2.16384"),
        ("4f", "1.39"),
        ("50", "2.0"),
        ("78", "2.40"),
        ("8837", "2.999"),
    ],
)
def test_numbers_of_attributes(number: str, dotted: str) -> None:
    assert _name(attribute(number, der(12, b"x"))) == f"{dotted}=#0c0178"


@pytest.mark.parametrize("size", [0, 126, 127, 128, 255, 256, 65_536])
def test_what_has_no_keyword_is_written_as_it_was_encoded(size: int) -> None:
    value = der(12, b"x" * size)
    number = der(6, bytes.fromhex("2a03"))
    found = f"1.2.3=#{value.hex()}"
    assert _name(long_name(number + value)) == found


def long_name(pair: bytes) -> bytes:
    """A name of one attribute of any size, with lengths of four bytes."""
    for tag in (0x30, 0x31):
        pair = bytes([tag, 0x84]) + len(pair).to_bytes(4, "big") + pair
    return pair


def test_a_value_that_is_no_text_is_written_as_it_was_encoded() -> None:
    assert _name(attribute(CN, der(3, b"\0\5"))) == "CN=#03020005"


def test_a_zero_byte_is_escaped() -> None:
    assert _name(attribute(CN, der(12, b"a\0b"))) == r"CN=a\00b"


@pytest.mark.parametrize("version", [b"", der(0xA0, der(2, b"\2"))])
def test_the_subject_is_found_with_and_without_a_version(version: bytes) -> None:
    """X.509: the version is left out in certificates of version 1."""
    issuer, subject = (attribute(CN, der(12, name)) for name in (b"issuer", b"subject"))
    before = [der(2, b"\7"), der(0x30), der(0x30, issuer), der(0x30)]
    after = [der(0x30), der(0xA1), der(0xA2), der(0xA3)]
    signed = der(0x30, version, *before, der(0x30, subject), *after)
    assert subject_of(der(0x30, signed)) == "CN=subject"


@given(st.binary(max_size=200))
def test_garbage_is_no_certificate(data: bytes) -> None:
    with pytest.raises(CertificateError):
        subject_of(data)


# The examples of KIP-371.
RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown", "serviceuser"),
        ("CN=AdminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("OU=x,cn=Duke.d", "DUKE.D"),
        ("OU=JavaSoft", "OU=JavaSoft"),
    ],
)
def test_mapping_rules(name: str, mapped: str) -> None:
    assert parse_mapping_rules(RULES)(name) == mapped


def test_rules_without_principals_and_invalid_rules() -> None:
    assert parse_mapping_rules("")("CN=a") == parse_mapping_rules("DEFAULT")("CN=a") == "CN=a"
    with pytest.raises(CertificateError):
        parse_mapping_rules("RULE:^CN=b$/b/")("CN=a")
    assert parse_mapping_rules(r"RULE:^CN=(.*)$/a\/$1\\/")("CN=x") == r"a/x" + "\\"
    for bad in ("default", "RULE:^a$/b", "RULE:(/b/", "DEFAULT DEFAULT", "RULE:a/b/X"):
        with pytest.raises(ValueError, match=r"ssl\.principal\.mapping\.rules"):
            parse_mapping_rules(bad)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        (r"RULE:^CN=a\/b$/x/", "CN=a/b", "x"),
        ("RULE:^CN=(.*)$//", "CN=a", ""),
        ("RULE:^CN=(.*)$/u1-$1$/", "CN=a", "u1-a$"),
        ("RULE:^CN=(.*)$/$x/", "CN=a", "$x"),
        ("RULE:^CN=(.*)$/$1/L,DEFAULT", "CN=A", "a"),
        ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=A", "A"),
    ],
)
def test_rules_of_unusual_form(rules: str, name: str, mapped: str) -> None:
    assert parse_mapping_rules(rules)(name) == mapped


def test_a_rule_that_is_no_pattern_is_named() -> None:
    with pytest.raises(ValueError, match=r"ssl\.principal\.mapping\.rules: \(a: missing \)"):
        parse_mapping_rules("RULE:(a/b/")


def test_super_users() -> None:
    assert user("a") == "User:a"
    assert parse_super_users("User:a; User:CN=b,OU=c ;") == {"User:a", "User:CN=b,OU=c"}
    assert parse_super_users("") == frozenset()
    for bad in ("alice", "User:", ":alice"):
        with pytest.raises(ValueError, match=r"super\.users"):
            parse_super_users(bad)


@pytest.mark.parametrize(
    ("number", "tag", "value", "name"),
    [
        ("550403", 20, "café".encode("latin-1"), "CN=café"),
        ("550403", 28, "ö\U0001f600".encode("utf-32-be"), "CN=ö\U0001f600"),
        ("550403", 30, "öß".encode("utf-16-be"), "CN=öß"),
        ("550406", 19, b"DE", "C=DE"),
        ("550408", 12, b"Hessen", "ST=Hessen"),
    ],
)
def test_strings_and_attributes_of_all_kinds(
    number: str, tag: int, value: bytes, name: str
) -> None:
    oid = bytes.fromhex(number)
    pair = bytes((6, len(oid))) + oid + bytes((tag, len(value))) + value
    relative = bytes((0x30, len(pair))) + pair
    assert _name(bytes((0x31, len(relative))) + relative) == name


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x04\x80", "a length that DER does not have"),
        (b"\x04\x85\0\0\0\0\1x", "a length that DER does not have"),
        (b"\x04\2x", "cut short"),
        (b"\x04\x84\0\0\0\2x", "cut short"),
    ],
)
def test_what_is_no_der_is_said(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _items(data)


def test_so_many_items_are_read_and_no_more() -> None:
    assert _items(b"\x04\x84\0\0\0\1x") == [(4, b"x")]
    assert len(_items(b"\5\0" * 1_025)) == 1_024
    assert _items(b"\5\0\4\1x", 1) == [(5, b"")]


def test_what_follows_a_certificate_is_not_read() -> None:
    fields = [der(2), der(0x30), der(0x30), der(0x30), der(0x30, attribute(CN, der(12, b"a")))]
    certificate = der(0x30, der(0x30, *fields))
    assert subject_of(certificate + der(5)) == "CN=a"


def test_a_slash_in_a_pattern_is_escaped() -> None:
    assert parse_mapping_rules(r"RULE:^CN=(.*)\/host$/$1/")("CN=alice/host") == "alice"


def test_an_unknown_client_has_kafkas_name() -> None:
    assert ANONYMOUS == "User:ANONYMOUS"

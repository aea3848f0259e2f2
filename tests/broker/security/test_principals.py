"""Certificates' names as Java writes them, and the rules that make users of them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.security.principals import (
    CertificateError,
    _items,
    _name,
    parse_mapping_rules,
    parse_super_users,
    subject_of,
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


def test_rules_for_nobody_and_rules_that_are_none() -> None:
    assert parse_mapping_rules("")("CN=a") == parse_mapping_rules("DEFAULT")("CN=a") == "CN=a"
    with pytest.raises(CertificateError):
        parse_mapping_rules("RULE:^CN=b$/b/")("CN=a")
    assert parse_mapping_rules(r"RULE:^CN=(.*)$/a\/$1\\/")("CN=x") == r"a/x" + "\\"
    for bad in ("default", "RULE:^a$/b", "RULE:(/b/", "DEFAULT DEFAULT", "RULE:a/b/X"):
        with pytest.raises(ValueError, match=r"ssl\.principal\.mapping\.rules"):
            parse_mapping_rules(bad)


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=b,OU=c ;") == {"User:a", "User:CN=b,OU=c"}
    assert parse_super_users("") == frozenset()
    for bad in ("alice", "User:", ":alice"):
        with pytest.raises(ValueError, match=r"super\.users"):
            parse_super_users(bad)

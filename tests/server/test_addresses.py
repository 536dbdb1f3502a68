from __future__ import annotations

import ipaddress
import socket

import pytest

from lad.errors import LadError
from lad.server.addresses import ForbiddenAddressError, HostList, Target, is_public, parse_address, resolve
from lad.server.settings import parse_networks


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "2001:0:1::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("http://Example.COM/a.png?b=c#d", Target("http", "example.com", 80, "/a.png?b=c")),
        ("HTTPS://example.com.", Target("https", "example.com", 443, "/")),
        ("https://example.com:8443?x", Target("https", "example.com", 8443, "/?x")),
        ("http://[::1]:80/", Target("http", "::1", 80, "/")),
        ("http://bücher.example/", Target("http", "xn--bcher-kva.example", 80, "/")),
    ],
)
def test_addresses_are_taken_apart(address: str, target: Target) -> None:
    assert parse_address(address) == target


def test_the_host_header_names_a_port_only_where_it_matters() -> None:
    assert Target("http", "a.b", 80, "/").authority == "a.b"
    assert Target("https", "a.b", 80, "/").authority == "a.b:80"
    assert Target("http", "::1", 8080, "/").authority == "[::1]:8080"


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://a.b/", "file:///etc/passwd", "gopher://a.b", "http://", "http:///x", "a.b/c", "//a.b/c"),
        *("http://user@a.b/", "http://user:secret@a.b/", "http://allowed.example@127.0.0.1/"),
        *("http://a.b/\r\nHost: c", "http://a.b/ x", "http://a.b\\@c/", "http://a.b:99999/", "http://a.b:x/"),
        *("http://[::1/", "http://a.b/ä", "http://" + "ä" * 300 + "/", "http://a.b\t/"),
    ],
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        parse_address(address)


@pytest.mark.parametrize(
    ("entry", "address", "allowed"),
    [
        ("images.example.com", "http://images.example.com/x", True),
        ("images.example.com", "https://IMAGES.example.com/x", True),
        ("Images.Example.com.", "http://images.example.com/x", True),
        ("images.example.com", "http://images.example.com:8080/x", False),
        ("images.example.com:8080", "http://images.example.com:8080/x", True),
        ("images.example.com:8080", "http://images.example.com/x", False),
        ("images.example.com", "http://example.com/x", False),
        ("images.example.com", "http://evil-images.example.com/x", False),
        ("images.example.com", "http://images.example.com.evil.com/x", False),
        ("*.example.com", "http://a.b.example.com/x", True),
        ("*.example.com", "http://example.com/x", False),
        ("*.example.com", "http://badexample.com/x", False),
        ("[::1]:81", "http://[::1]:81/x", True),
        ("127.0.0.1", "http://2130706433/x", False),
    ],
)
def test_allowed_hosts(entry: str, address: str, allowed: bool) -> None:
    assert HostList((entry,)).allows(parse_address(address)) is allowed


def test_no_hosts_allow_nothing() -> None:
    assert not HostList(())
    assert not HostList(()).allows(parse_address("http://a.b/"))


@pytest.mark.parametrize("entry", ["", "*", "http://a.b", "a.b/c", "a b", "*.*.b", "user@a.b", "a.b:x", "a.b:99999"])
def test_entries_that_are_no_hosts(entry: str) -> None:
    with pytest.raises(LadError, match="allowed host"):
        HostList((entry,))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "::1"])
def test_however_the_loopback_is_written_it_is_refused(host: str) -> None:
    with pytest.raises(ForbiddenAddressError, match="not public"):
        resolve(Target("http", host, 80, "/"))


def test_a_name_that_is_not_known() -> None:
    with pytest.raises(ForbiddenAddressError, match="not known"):
        resolve(Target("http", "nowhere.invalid", 80, "/"))
    with pytest.raises(ForbiddenAddressError, match="not known"):
        resolve(Target("http", "a" * 70 + ".example", 80, "/"))


def test_one_bad_address_of_a_name_spoils_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*addresses: str) -> None:
        entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)

    target = Target("http", "a.example", 80, "/")
    found("8.8.8.8", "8.8.4.4", "8.8.8.8")
    assert resolve(target) == ["8.8.8.8", "8.8.4.4"]
    found("8.8.8.8", "10.0.0.1")
    with pytest.raises(ForbiddenAddressError, match="not public"):
        resolve(target)
    assert resolve(target, parse_networks(["10.0.0.0/8"])) == ["8.8.8.8", "10.0.0.1"]


def test_networks() -> None:
    assert parse_networks(["10.0.0.0/8", "fd00::/8"])[1].version == 6
    with pytest.raises(LadError, match="no network"):
        parse_networks(["10.0.0.1/8"])

"""Which hosts images may be fetched from, and which addresses a name may turn out to be."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from lad.errors import LadError
from lad.server.settings import IPNetwork

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
# addresses that stand for an IPv4 address which only the network's own routers see: 6to4, Teredo, NAT64
_TUNNELS = tuple(ipaddress.IPv6Network(net) for net in ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48"))


class ForbiddenAddressError(Exception):
    """An address that images may not be fetched from; the message says why."""


@dataclass(frozen=True)
class Target:
    """What an address names.

    Attributes:
        scheme: "http" or "https".
        host: host name in lower case, or an IP address without brackets.
        port: port number.
        path: path and query, as sent.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"


def parse_address(address: str) -> Target:
    """Take an http(s) address apart.

    Raises:
        ForbiddenAddressError: another scheme, credentials in it, or no valid address.
    """
    try:
        if re.search(r"[\x00-\x20\x7f\\]", address):
            raise ValueError("white space or a control character")
        parts: SplitResult = urlsplit(address)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        path.encode("ascii")
        host = host.encode("ascii" if host.isascii() else "idna").decode().lower() if host else ""
    except ValueError as error:  # UnicodeError is one too
        raise ForbiddenAddressError("Is not a valid address.") from error
    if scheme not in _PORTS:
        raise ForbiddenAddressError("Is not an http or https address.")
    if not host:
        raise ForbiddenAddressError("Is an address without a host.")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddressError("Is an address with a user name; those are refused.")
    return Target(scheme, host.rstrip("."), _PORTS[scheme] if port is None else port, path)


class HostList:
    """The allowed hosts.

    Args:
        entries: "host", "*.host" (any subdomain, not the host itself), each with ":PORT" if it is not 80 or 443;
            IPv6 addresses in brackets.

    Raises:
        LadError: an entry is none of these.
    """

    def __init__(self, entries: tuple[str, ...]) -> None:
        self._entries = [self._parse(entry) for entry in entries]

    def __bool__(self) -> bool:
        return bool(self._entries)

    @staticmethod
    def _parse(entry: str) -> tuple[str, int | None]:
        try:
            parts = urlsplit(f"//{entry.strip().lower()}")
            host, port = parts.hostname or "", parts.port
            if not entry.strip().startswith("[") and not _NAME.fullmatch(host):
                raise ValueError(host)
            if parts.path or parts.query or parts.fragment or "@" in entry:
                raise ValueError(entry)
        except ValueError as error:
            raise LadError(
                f"The allowed host {entry!r} is not understood.",
                hint="Write images.example.com, *.example.com or images.example.com:8443.",
            ) from error
        return host.rstrip("."), port

    def allows(self, target: Target) -> bool:
        """Whether an entry names this host and port."""
        for name, port in self._entries:
            same = target.host.endswith(name[1:]) if name.startswith("*.") else target.host == name
            if same and target.port == (_PORTS[target.scheme] if port is None else port):
                return True
        return False


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the public internet: not private, loopback, link-local, multicast or reserved."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in tunnel for tunnel in _TUNNELS) or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def resolve(target: Target, networks: tuple[IPNetwork, ...] = ()) -> list[str]:
    """All addresses of a target's host, every one of them allowed.

    A name with one good and one bad address is refused as a whole: which of them is used is not ours to say.

    Args:
        target: whom to look up.
        networks: networks that are allowed although they are not public.

    Raises:
        ForbiddenAddressError: the name is not known, or an address is neither public nor in ``networks``.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ForbiddenAddressError("Its host is not known.") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if not is_public(address) and not any(address in network for network in networks):
            raise ForbiddenAddressError("Its host has an address that is not public.")
    return addresses

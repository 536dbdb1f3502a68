"""What the service allows. The defaults are meant to be left on: nothing is fetched, nothing is unbounded."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from lad.errors import LadError
from lad.images import ImageLimits

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class RequestLimits:
    """Sizes beyond which a request is refused.

    Attributes:
        body_bytes: the whole request body.
        image_bytes: one image file, as sent or as fetched.
        image: pixels and aspect ratio of one image.
        query_characters: length of the query.
        body_seconds: time for a request's body to arrive.
    """

    body_bytes: int = 16 * 2**20
    image_bytes: int = 8 * 2**20
    image: ImageLimits = field(default_factory=lambda: ImageLimits(max_pixels=25_000_000))
    query_characters: int = 4000
    body_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("body_bytes", "image_bytes", "query_characters", "body_seconds"):
            if getattr(self, name) <= 0:
                raise LadError(f"The limit {name} must be more than 0, not {getattr(self, name)}.")


@dataclass(frozen=True)
class Sources:
    """Where images may come from, besides the request itself. Nowhere, unless said.

    Attributes:
        hosts: hosts that images may be fetched from: "images.example.com", "*.example.com" (any subdomain), each with
            ":PORT" where it is not the scheme's own.
        networks: private networks that those hosts may have addresses in; every other address that is not public is
            refused, whatever its name.
        folder: folder whose files may be named as ``file:`` addresses.
        fetch_seconds: time for one image to arrive, redirects included.
        redirects: most redirects to follow for one image.
    """

    hosts: tuple[str, ...] = ()
    networks: tuple[IPNetwork, ...] = ()
    folder: Path | None = None
    fetch_seconds: float = 10.0
    redirects: int = 3


@dataclass(frozen=True)
class ServiceSettings:
    """Everything about the service that is not the model.

    Attributes:
        model_names: names that requests may call the model by; the first is the one that answers carry.
        api_keys: bearer keys, any of which opens the service; none for a service open to all who reach it.
        limits: what a request may measure.
        sources: where images may come from.
        places: requests taken at a time, from their first body byte to their answer; further ones are told to retry.
        batch: most requests ranked together.
        batch_seconds: how long a request waits for others that are already being read.
        drain_seconds: how long a stopping server takes to finish what it has taken.
    """

    model_names: tuple[str, ...] = ("lad",)
    api_keys: tuple[str, ...] = ()
    limits: RequestLimits = RequestLimits()
    sources: Sources = Sources()
    places: int = 32
    batch: int = 8
    batch_seconds: float = 0.01
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.model_names or not all(self.model_names):
            raise LadError("The service needs a name for its model.")
        if not all(self.api_keys):
            raise LadError("An API key is empty.")
        if self.places < 1 or self.batch < 1:
            raise LadError(f"At least one place and one request a batch are needed, not {self.places}, {self.batch}.")


def parse_networks(texts: list[str]) -> tuple[IPNetwork, ...]:
    """``["10.0.0.0/8"]`` -> networks.

    Raises:
        LadError: one is not a network.
    """
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise LadError(f"That is no network ({error}).", hint="Write it as 10.0.0.0/8 or fd00::/8.") from error


def read_api_keys(file: Path | None, variable: str | None) -> tuple[str, ...]:
    """The keys of a file, one a line, and the one of an environment variable.

    Keys come this way and not as arguments, because other users of a machine can see those.

    Raises:
        LadError: the file cannot be read or holds no key.
    """
    keys = [variable.strip()] if variable and variable.strip() else []
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise LadError("The file of API keys cannot be read.", where=str(file)) from error
        found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise LadError("There is no API key in this file.", where=str(file), hint="Write one a line.")
        keys += found
    return tuple(keys)

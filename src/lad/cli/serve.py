"""`lad serve`: the rerank service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lad.cli import options as opt
from lad.errors import LadError

if TYPE_CHECKING:
    from lad.server.settings import ServiceSettings

_SERVER = "Server"
_LIMITS = "Limits"
_SOURCES = "Where images may come from, besides requests themselves"
_MIB = 2**20
_KEY_VARIABLE = "LAD_API_KEY"


def serve(
    model: opt.ModelArgument = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Folder made by `lad calibrate`; the shipped model brings its own.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=_SERVER)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any.", min=0, max=65535, rich_help_panel=_SERVER)] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"File of bearer keys, one a line. {_KEY_VARIABLE} gives one too.", rich_help_panel=_SERVER),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Listen beyond this machine without a key.", rich_help_panel=_SERVER)
    ] = False,
    model_name: Annotated[
        list[str] | None, typer.Option(help="What requests call the model; may be repeated.", rich_help_panel=_SERVER)
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            callback=opt.finite, help="Time to finish what was taken when told to stop.", min=1, rich_help_panel=_SERVER
        ),
    ] = 30.0,
    places: Annotated[
        int, typer.Option(help="Requests in the service at a time; others get a 429.", min=1, rich_help_panel=_LIMITS)
    ] = 32,
    batch: Annotated[int, typer.Option(help="Requests ranked together.", min=1, rich_help_panel=_LIMITS)] = 8,
    batch_ms: Annotated[
        float,
        typer.Option(
            callback=opt.finite, help="Wait for requests that are being read.", min=0, rich_help_panel=_LIMITS
        ),
    ] = 10.0,
    max_body_mib: Annotated[
        float, typer.Option(callback=opt.finite, help="A request's body.", rich_help_panel=_LIMITS)
    ] = 16,
    max_image_mib: Annotated[
        float, typer.Option(callback=opt.finite, help="One image file.", rich_help_panel=_LIMITS)
    ] = 8,
    max_megapixels: Annotated[
        float, typer.Option(callback=opt.finite, help="One image, decoded.", rich_help_panel=_LIMITS)
    ] = 25,
    max_aspect: Annotated[
        float, typer.Option(callback=opt.finite, help="Long side over short side.", rich_help_panel=_LIMITS)
    ] = 200,
    max_query: Annotated[int, typer.Option(help="Characters of a query.", rich_help_panel=_LIMITS)] = 4000,
    body_seconds: Annotated[
        float, typer.Option(callback=opt.finite, help="Time for a body to arrive.", rich_help_panel=_LIMITS)
    ] = 10,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host to fetch from, or *.domain; may be repeated.", rich_help_panel=_SOURCES),
    ] = None,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(help="Private network that allowed hosts may be in, as 10.0.0.0/8.", rich_help_panel=_SOURCES),
    ] = None,
    allow_folder: Annotated[
        Path | None, typer.Option(help="Folder whose files may be named file:///...", rich_help_panel=_SOURCES)
    ] = None,
    fetch_seconds: Annotated[
        float, typer.Option(callback=opt.finite, help="Time for one image.", rich_help_panel=_SOURCES)
    ] = 10,
    method: Annotated[str, typer.Option(help="Decision rule, for instance agd or agd_calibrated_layers.")] = "agd",
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    adapter: opt.Adapter = None,
    trust_remote_code: opt.TrustRemoteCode = False,
    image_size: opt.ImageSize = "auto",
    tiling: opt.Tiling = False,
    attention: opt.Attention = "span",
    identifiers: opt.Identifiers = "digits",
    prompt: opt.Prompt = None,
    top_k: opt.TopK = 2,
    temperature: opt.Temperature = 5.0,
    layer_range: opt.LayerRange = None,
    layer_choice: opt.LayerChoice = "mass",
    purification: opt.Purification = "log_of_mean",
    mixture: opt.Mixture = "log",
    no_prior: opt.NoPrior = False,
) -> None:
    """Serve the rerank endpoints that clients of Cohere, Jina and vLLM speak.

    Listens on this machine only, and takes images from nowhere but the requests themselves, unless told otherwise.
    """
    from lad.server import require_packages

    require_packages()
    from lad.images import ImageLimits
    from lad.ranker import Ranker, ranker_calibrations
    from lad.server.addresses import HostList
    from lad.server.app import create_app
    from lad.server.run import is_loopback, open_socket
    from lad.server.run import serve as run
    from lad.server.settings import RequestLimits, ServiceSettings, Sources, parse_networks, read_api_keys

    # what can be refused without the model is refused before it is loaded
    keys = read_api_keys(api_key_file, os.environ.get(_KEY_VARIABLE))
    if not keys and not is_loopback(host) and not open_to_all:
        raise LadError(
            f"On {host} the service would be open to everybody who reaches this machine.",
            hint=f"Give a key with --api-key-file or {_KEY_VARIABLE}, or say --open-to-all.",
        )
    HostList(tuple(allow_host or ()))  # complains of what it does not understand
    if allow_folder is not None and not allow_folder.is_dir():
        raise LadError("There is no such folder.", where=str(allow_folder))
    limits = RequestLimits(
        body_bytes=int(max_body_mib * _MIB),
        image_bytes=int(max_image_mib * _MIB),
        image=ImageLimits(max_pixels=int(max_megapixels * 1e6), max_aspect=max_aspect),
        query_characters=max_query,
        body_seconds=body_seconds,
    )
    settings = ServiceSettings(
        model_names=tuple(model_name or [_name(model)]),
        api_keys=keys,
        limits=limits,
        sources=Sources(tuple(allow_host or ()), parse_networks(allow_network or []), allow_folder, fetch_seconds),
        places=places,
        batch=batch,
        batch_seconds=batch_ms / 1000,
        drain_seconds=drain_seconds,
    )
    decisions = opt.decision_options(top_k, temperature, layer_range, layer_choice, purification, mixture, no_prior)
    template = opt.load_template(prompt)
    names = opt.parse_identifiers(identifiers)
    calibrations = ranker_calibrations(model, calibration)
    listening = open_socket(host, port)
    vlm = opt.load_model(
        model,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        image_size=image_size,
        attention=attention,
        adapter=adapter,
        tiling=tiling,
    )
    ranker = Ranker(vlm, calibrations, template=template, identifiers=names, method=method, options=decisions)
    app = create_app(ranker, settings)
    app.state.service.engine.warm_up()
    run(app, listening, settings, lambda address: _announce(address, settings))


def _name(model: str | None) -> str:
    """What the model is called by default: its hub name, or its folder's."""
    if model is None:
        return "lad"
    return Path(model).resolve().name if Path(model).is_dir() else model


def _announce(address: str, settings: ServiceSettings) -> None:
    key = "with a key" if settings.api_keys else "without a key"
    typer.echo(f"Serving {settings.model_names[0]!r} on {address} ({key}). Description: {address}/docs", err=True)

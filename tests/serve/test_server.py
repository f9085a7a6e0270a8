"""The address of a service, its limit of open files, and the names of its models."""

from __future__ import annotations

import resource
import shutil
import socket
from pathlib import Path

import pytest

from clearhead.errors import ConfigError
from clearhead.serve.registry import Service
from clearhead.serve.server import Address, allow_connections


def test_only_a_local_address_needs_no_token() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        assert Address(host).access.token is None
    for host in ("0.0.0.0", "192.168.1.7", "::", "example.org"):
        with pytest.raises(ConfigError, match=f"--host {host} opens the service to other machines"):
            Address(host)
        assert Address(host, token="x").access.token == "x"


def test_the_url_has_the_port_that_was_bound() -> None:
    place = Address(port=0)
    with place.listen() as listening:
        assert place.url(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"
        taken = Address(port=listening.getsockname()[1])
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1, port \d+: Address already in use"):
            taken.listen()


def test_connections_have_nodelay_set() -> None:
    with Address(port=0).listen() as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_unknown_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError(socket.EAI_NONAME, "Name or service not known (while attempting to bind)")

    monkeypatch.setattr(socket, "create_server", unknown)
    with pytest.raises(ConfigError, match=r"cannot listen on no\.such, port 8000: there is no such address; choose"):
        Address("no.such", token="x").listen()


def test_the_limit_of_open_files_is_raised_as_far_as_permitted() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_connections(soft + 7)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(soft + 107, hard), hard)
        allow_connections(3)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(soft + 107, hard), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_models_are_named_by_their_directory_or_by_the_user(runs: list[str], tmp_path: Path) -> None:
    vectors = next(run for run in runs if run.endswith("vectors"))
    service = Service.load([vectors, f"other={vectors}"])
    assert list(service.models) == ["vectors", "other"]
    service.close()
    odd = tmp_path / "rate=0.1"
    shutil.copytree(vectors, odd)
    service = Service.load([str(odd), f"odd={odd}"])
    assert list(service.models) == ["rate=0.1", "odd"]
    service.close()
    with pytest.raises(ConfigError, match="two models are called vectors; give one of them another name: NAME="):
        Service.load([vectors, f"vectors={vectors}"])


def test_weights_are_rounded_for_all(runs: list[str]) -> None:
    writer = next(run for run in runs if run.endswith("writer"))
    service = Service.load([writer], quantise="q8")
    assert service.models["writer"].model.engines.quantise == "q8"
    service.close()
    with pytest.raises(ConfigError, match="unknown quantise=q5"):
        Service.load([writer], quantise="q5")

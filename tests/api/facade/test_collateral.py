"""What makers of processors publish, requested by enclaves with their Pods' tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.programs.facade import Facade, FacadeInstallation, run_command, start_facade
from tests.support.programs.facade_enclaves import enclave_with_token
from tests.support.programs.maker_services import MakerServices, maker_services
from tests.support.waiting import until

PATH = "/api/shim/collateral"
TCB = "https://api.trustedservices.intel.com/tdx/certification/v4/tcb?fmspc=50806f000000"


@pytest.fixture(scope="module")
def makers() -> Iterator[MakerServices]:
    with maker_services() as services:
        yield services


@pytest.fixture(scope="module")
def folder(
    facade_settings: Path, makers: MakerServices, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a directory with settings and an authority; the ledger is the shared one."""
    made = tmp_path_factory.mktemp("collateral")
    path = settings_for(makers, facade_settings, made / "api.yml")
    run_command("ca", "create", "--config", str(path))
    return made


@pytest.fixture(scope="module")
def caching(folder: Path) -> Iterator[Facade]:
    """Return a facade that fetches from the fakes."""
    with start_facade(folder / "api.yml") as running:
        yield running


def settings_for(makers: MakerServices, facade_settings: Path, path: Path, **settings: int) -> Path:
    """Write the settings of a facade that fetches from fakes, and return their path."""
    document = yaml.safe_load(facade_settings.read_text())
    document["ledger"] = {
        key: str(facade_settings.parent / name) for key, name in document["ledger"].items()
    }
    own = {"certificate": "ca.pem", "key": "ca.key"}
    document["certificates"] = {"issuer": "own", "own": own}
    document["collateral"] = {"amd": makers.base, "intel": makers.base, **settings}
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.spec("26.4")
async def test_an_enclave_gets_what_the_maker_publishes(
    caching: Facade, makers: MakerServices, world: FacadeInstallation
) -> None:
    token = await enclave_with_token(world, "web")
    async with caching.client() as client:

        async def ask(address: str, bearer: str = token) -> tuple[int, bytes, str]:
            headers = {"Authorization": f"Bearer {bearer}"}
            found = await client.get(PATH, params={"address": address}, headers=headers)
            chain = found.headers.get("tcb-info-issuer-chain", "")
            return found.status_code, found.content, chain

        async def is_known() -> bool:
            return (await ask("x"))[0] == 400

        await until(is_known, what="the facade to know the Enclave")
        before = len(makers.requests)
        status, body, chain = await ask(TCB)
        assert (status, b'"nextUpdate"' in body) == (200, True)
        assert chain.startswith("-----BEGIN%20CERTIFICATE")
        assert await ask(TCB) == (status, body, chain)
        assert len(makers.requests) == before + 1
        assert (await ask(TCB, "no token"))[0] == 401
        assert (await client.get(PATH, params={"address": TCB})).status_code == 401
        assert (await ask(f"{makers.base}/tdx/certification/v4/qe/identity"))[0] == 400
        makers.status = 500
        assert (await ask(TCB.replace("50806f", "00806f")))[0] == 503
        makers.status = 200


@pytest.mark.spec("26.4")
async def test_an_enclave_that_requests_too_much_waits(
    makers: MakerServices, world: FacadeInstallation, facade_settings: Path, folder: Path
) -> None:
    token = await enclave_with_token(world, "web")
    headers = {"Authorization": f"Bearer {token}"}
    path = settings_for(makers, facade_settings, folder / "rate.yml", requestsPerHour=2)
    with start_facade(path) as facade:
        async with facade.client() as client:

            async def known() -> bool:
                found = await client.get(PATH, params={"address": TCB}, headers=headers)
                return found.status_code == 200

            await until(known, what="the facade to know the Enclave")
            answers = [
                await client.get(PATH, params={"address": TCB}, headers=headers) for _ in range(2)
            ]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert 1700 < int(answers[1].headers["retry-after"]) <= 1800
    assert answers[1].json()["code"] == "RATE_LIMITED"

"""Certificates of enclaves from the facade's own authority, asked for with their Pods' tokens."""

import json
import shutil
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from typing_extensions import override

from cloister_api.auth.pod_tokens import ENCLAVE_RATE
from cloister_clients.kube.kinds import EVENT, POD, TOKEN_REVIEW, of
from cloister_crds.kinds import Container, Enclave, HostnameClaim
from cloister_crds.names import token_audience
from tests.support.builders.signing_requests import new_key, signing_request
from tests.support.faults.fault_kinds import ApiRequest, Fault
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.programs.facade import Facade, FacadeInstallation, run_command, start_facade
from tests.support.programs.facade_enclaves import (
    create_pod,
    enclave_with_token,
    report_domain,
    request_token,
)
from tests.support.waiting import until

PATH = "/api/shim/cert"


@pytest.fixture(scope="module")
def settings(
    facade_settings: Path, proxy: FaultyProxy, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return settings with an own authority; the ledger is the shared one.

    A proxy to the API server counts the TokenReviews.
    """
    folder = tmp_path_factory.mktemp("certificates")
    document = yaml.safe_load(facade_settings.read_text())
    document["ledger"] = {
        key: str(facade_settings.parent / name) for key, name in document["ledger"].items()
    }
    document["kubeconfig"] = str(proxy.open_port("signing").kubeconfig)
    document["certificates"] = {
        "issuer": "own",
        "own": {"certificate": "ca.pem", "key": "ca.key", "lifetimeSeconds": 3600},
        "requestsPerHour": 3,
    }
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def signing(settings: Path) -> Iterator[Facade]:
    """Return a facade that signs."""
    run_command("ca", "create", "--config", str(settings))
    with start_facade(settings) as running:
        yield running


class Asker:
    """An enclave of a world, as the facade sees it."""

    def __init__(
        self, client: httpx.AsyncClient, world: FacadeInstallation, name: str, token: str
    ) -> None:
        self.client = client
        self.world = world
        self.name = name
        self.token = token
        self.host = f"{name}.{world.organization}.containers.test"

    async def request(self, csr: str, token: str | None = None) -> httpx.Response:
        """Ask for a certificate."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return await self.client.post(PATH, json={"csr": csr}, headers=headers)

    async def first_request(self, csr: str) -> httpx.Response:
        """Ask until the facade's cache shows the Container and the Organization too."""

        async def judged() -> httpx.Response | None:
            answer = await self.request(csr)
            unseen = ("does not exist any more", "no organization owns")
            return None if any(words in answer.text for words in unseen) else answer

        answer = await until(judged, every=0.02, what="the facade to know the Container")
        assert answer is not None
        return answer

    async def known(self) -> bool:
        """Return whether the facade's cache shows the Enclave: then an unfit request is 400."""
        return (await self.request("x")).status_code == 400


@pytest.fixture
async def asker(signing: Facade, world: FacadeInstallation) -> AsyncIterator[Asker]:
    """Return an enclave with a token."""
    async with signing.client() as client:
        yield await an_enclave(client, world, "web")


async def an_enclave(client: httpx.AsyncClient, world: FacadeInstallation, name: str) -> Asker:
    """Make an Enclave and wait until the facade knows it."""
    token = await enclave_with_token(world, name)
    made = Asker(client, world, name, token)
    await until(made.known, what="the facade to know the Enclave")
    return made


@pytest.mark.spec("26.1", "26.3")
async def test_an_enclave_gets_its_certificate(asker: Asker, settings: Path) -> None:
    key = new_key()
    request = signing_request(asker.host, key=key)
    answer = await asker.first_request(request)
    assert answer.status_code == 200, answer.text
    certificates = x509.load_pem_x509_certificates(answer.json()["certificate"].encode())
    leaf = certificates[0]
    assert leaf.public_key() == key.public_key()
    assert answer.json()["not_after"] == f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    shown = run_command("ca", "show", "--config", str(settings)).stdout
    downloaded = await asker.client.get("/api/shim/ca")
    assert (downloaded.status_code, downloaded.text) == (200, shown)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(shown.encode()))
    again = await asker.request(request)
    assert again.json() == answer.json(), "the same request is the same order"
    rows = [row for row in await asker.world.audit() if row.action == "certificate.order"]
    assert [(row.actor, row.result) for row in rows] == [("enclave web", "200")]


@pytest.mark.spec("26.2")
@pytest.mark.attack("foreign-certificate")
async def test_only_its_own_host_names(asker: Asker) -> None:
    other = await an_enclave(asker.client, asker.world, "other")
    for names in ((other.host,), (asker.host, other.host), (f"*.{asker.host}",)):
        answer = await asker.request(signing_request(*names))
        assert answer.status_code == 403, answer.text
        assert answer.json()["code"] == "FORBIDDEN"
        assert asker.host in answer.json()["error"]


async def test_an_unfit_certificate_request_has_a_reason(asker: Asker) -> None:
    answer = await asker.request(signing_request(asker.host, subject="Someone Else"))
    assert answer.status_code == 400
    assert answer.json()["details"][0]["field"] == "csr"
    assert "subject" in answer.json()["error"]
    missing = await asker.client.post(
        PATH, json={}, headers={"Authorization": f"Bearer {asker.token}"}
    )
    assert missing.json()["details"][0]["field"] == "csr"


def forged(token: str, **claims: object) -> str:
    """Return a token that says other things; its signature is no longer right."""
    head, payload, signature = token.split(".")
    said = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))) | claims
    payload = urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    return f"{head}.{payload}.{signature}"


async def test_without_the_token_of_a_live_enclave_there_is_nothing(asker: Asker) -> None:
    request = signing_request(asker.host)
    for token in ("x", "a.b.c", forged(asker.token, jti="another"), f"{asker.token[:-4]}AAAA"):
        answer = await asker.request(request, token)
        assert answer.status_code == 401, answer.text
        assert answer.json()["code"] == "UNAUTHORIZED"
    bare = await asker.client.post(PATH, json={"csr": 1})
    assert bare.status_code == 401

    async def refused() -> bool:
        return (await asker.request("x")).status_code == 401

    await asker.world.report_enclave(asker.name, phase="Failed", observedGeneration=1)
    await until(refused, what="the token of a failed enclave to be refused")


@pytest.mark.spec("26.1")
@pytest.mark.attack("foreign-token")
async def test_only_the_token_of_its_present_pod_is_an_enclaves(
    asker: Asker, other_world: FacadeInstallation
) -> None:
    """The attack: tokens of the same cluster that are for something else, or somebody else."""
    world, name = asker.world, asker.name
    (enclave,) = (await world.kube.list(of(Enclave), world.namespace)).items
    audience = token_audience(enclave["metadata"]["uid"])
    pod = (await world.kube.get(POD, name, world.namespace))["metadata"]["uid"]
    helper = await create_pod(world, "helper")
    stranger = await create_pod(world, "stranger", "stranger")
    elsewhere = await create_pod(other_world, name)
    tokens = {
        "another audience": await request_token(world, "", name, pod),
        "another Enclave's audience": await request_token(world, f"{audience}0", name, pod),
        "no Pod": await request_token(world, audience, "", ""),
        "another Pod": await request_token(world, audience, "helper", helper),
        "another account": await request_token(world, audience, "stranger", stranger, "stranger"),
        "another organization": await request_token(other_world, audience, name, elsewhere),
    }
    for whose, token in tokens.items():
        assert (await asker.request("x", token)).status_code == 401, whose
    assert await asker.known(), "its own one is still accepted"
    await world.report_enclave(name, podUID=helper, observedGeneration=1)

    async def refused() -> bool:
        return (await asker.request("x")).status_code == 401

    await until(refused, what="the token of a Pod that is not the Enclave's to be refused")


@pytest.mark.spec("26.1")
@pytest.mark.attack("foreign-token")
async def test_the_token_of_a_deleted_pod_is_refused(asker: Asker) -> None:
    world, name = asker.world, asker.name
    (enclave,) = (await world.kube.list(of(Enclave), world.namespace)).items
    pod = (await world.kube.get(POD, name, world.namespace))["metadata"]["uid"]
    audience = token_audience(enclave["metadata"]["uid"])
    renewed, unseen, *others = [await request_token(world, audience, name, pod) for _ in range(30)]
    assert (await asker.request("x", renewed)).status_code == 400, "a token that was renewed"
    await world.kube.delete(POD, name, world.namespace, grace_period=0)

    async def noticed() -> bool:
        """Return whether the API server knows of the deletion, which it learns by a watch."""
        # One that it has accepted stays accepted for a while, so that each is used once.
        review = {"spec": {"token": others.pop(), "audiences": [audience]}}
        found = await world.kube.create(TOKEN_REVIEW, review)
        return not found["status"].get("authenticated", False)

    await until(noticed, every=0.3, what="the API server to refuse tokens of the Pod")
    assert (await asker.request("x", unseen)).status_code == 401


class ReviewCounter(Fault):
    """Count the TokenReviews."""

    def __init__(self) -> None:
        self.count = 0

    @override
    async def before(self, request: ApiRequest) -> None:
        self.count += request.kind == "tokenreviews"


@pytest.fixture
def reviews(asker: Asker, proxy: FaultyProxy) -> Iterator[ReviewCounter]:
    """Count the TokenReviews of a test, after its enclave is known."""
    counter = ReviewCounter()
    proxy.faults = (counter,)
    yield counter
    proxy.faults = ()


@pytest.mark.attack("random-tokens")
async def test_strangers_cannot_flood_the_api_server_with_tokens(
    asker: Asker, reviews: ReviewCounter
) -> None:
    """The attack: random tokens, each of which the API server would have to judge."""
    unknown = [forged(asker.token, aud=[f"certificates.cloister.dev/{n}"]) for n in range(50)]
    for token in ("x" * 9000, *unknown, *(forged(asker.token, exp=n) for n in range(50))):
        assert (await asker.request("x", token)).status_code == 401
    assert reviews.count == 0, "refused by what they say"
    begun = time.monotonic()
    answers = [await asker.request("x", forged(asker.token, jti=str(n))) for n in range(100)]
    seconds = time.monotonic() - begun
    judged = [answer.status_code for answer in answers].count(401)
    assert 0 < judged == reviews.count <= ENCLAVE_RATE.burst + ENCLAVE_RATE.per_second * seconds
    assert {answer.status_code for answer in answers} == {401, 429}
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
    assert await asker.known(), "the enclave's own token, which was judged before, is accepted"
    other = await an_enclave(asker.client, asker.world, "other")
    assert await other.known(), "another enclave is not affected"


async def test_the_token_of_a_deleted_enclave_is_refused(asker: Asker) -> None:
    await asker.world.kube.delete(of(Enclave), asker.name, asker.world.namespace)

    async def refused() -> bool:
        return (await asker.request(signing_request(asker.host))).status_code == 401

    await until(refused, what="the token of a deleted enclave to be refused")
    later = await enclave_with_token(asker.world, asker.name)
    successor = Asker(asker.client, asker.world, asker.name, later)
    await until(successor.known, what="the facade to know the successor")
    assert (await asker.request("x")).status_code == 401, "the token of an earlier one of that name"


async def test_too_many_new_requests_are_put_off(asker: Asker) -> None:
    key = new_key()
    requests = [signing_request(asker.host, key=key) for _ in range(4)]
    answers = [await asker.first_request(request) for request in requests]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json()["code"] == "RATE_LIMITED"
    assert 3000 < int(answers[3].headers["retry-after"]) <= 3600
    assert (await asker.request(requests[0])).status_code == 200, "an old request is no new one"


@pytest.mark.attack("second-key")
async def test_a_token_is_good_for_one_key(asker: Asker, settings: Path, signing: Facade) -> None:
    """The attack: who reads an enclave's token has a certificate signed for a key of their own."""
    first = new_key()
    bound = await asker.first_request(signing_request(asker.host, key=first))
    assert bound.status_code == 200, bound.text
    with start_facade(settings) as replica:
        async with replica.client() as client:
            other = Asker(client, asker.world, asker.name, asker.token)
            await until(other.known, what="the replica to know the Enclave")
            for _ in range(2):
                answer = await other.request(signing_request(asker.host))
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
                assert "bound to the key of its first request" in answer.json()["error"]
    again = signing_request(asker.host, key=first, subject=asker.host)
    assert (await asker.request(again)).status_code == 200, "a renewal with the key"
    rows = [row.action for row in await asker.world.audit()]
    assert rows.count("certificate.second_key") == 1
    events = (await asker.world.kube.list(EVENT, asker.world.namespace)).items
    (event,) = (each for each in events if each["reason"] == "SecondKey")
    assert (event["type"], event["regarding"]["name"]) == ("Warning", asker.name)


@pytest.mark.attack("foreign-certificate")
async def test_a_host_name_that_its_container_lost_is_not_signed(
    asker: Asker, world: FacadeInstallation
) -> None:
    """The attack: an enclave that still runs goes on to get certificates of a name it lost."""
    host = f"{world.organization}.customer.test"
    held = Asker(asker.client, world, "held", await enclave_with_token(world, "held", host))
    await until(held.known, what="the facade to know the Enclave")
    key = new_key()

    async def told(status: int, words: str = "") -> None:
        async def seen() -> bool:
            answer = await held.request(signing_request(host, key=key))
            return answer.status_code in {status, 429} and words in answer.text

        await until(seen, what=f"{status} {words}")

    await told(200)
    await report_domain(world, host, verified=False, servedUntil="2020-01-01T00:00:00Z")
    await told(403, f"{host} may not be served")
    await report_domain(world, host, verified=True, servedUntil=None)
    await world.kube.delete(of(HostnameClaim), host)
    await told(403, f"{host} is not claimed by container held any more")
    holder = {"namespace": world.namespace, "name": "another"}
    claim = {"metadata": {"name": host}, "spec": {"holder": holder}}
    await world.kube.create(of(HostnameClaim), claim)
    await told(403, "is not claimed by container held")
    await world.kube.delete(of(Container), "held", world.namespace)
    await told(403, "container held of this enclave does not exist any more")


async def test_without_an_issuer_certificates_are_503(
    facade: Facade, world: FacadeInstallation
) -> None:
    token = await enclave_with_token(world, "web")
    async with facade.client() as client:
        unset = Asker(client, world, "web", token)

        async def told() -> bool:
            return (await unset.request("x")).status_code == 503

        await until(told, what="the facade to say that nobody signs")
        answer = await unset.request(signing_request(unset.host))
        assert answer.json()["code"] == "UNAVAILABLE"
        assert "certificates" in answer.json()["error"]
        assert answer.headers["retry-after"]
        assert (await client.get("/api/shim/ca")).status_code == 404


def test_the_ca_command_reports_what_is_missing(
    settings: Path, facade_settings: Path, signing: Facade, tmp_path: Path
) -> None:
    again = run_command("ca", "create", "--config", str(settings), check=False)
    assert again.returncode == 1
    assert "exists" in again.stderr
    none = run_command("ca", "show", "--config", str(facade_settings), check=False)
    assert "certificates.issuer" in none.stderr
    copy = tmp_path / "api.yml"
    shutil.copy(settings, copy)
    missing = run_command("api", "--config", str(copy), check=False)
    assert missing.returncode == 1
    assert "`cloister ca` creates it" in missing.stderr

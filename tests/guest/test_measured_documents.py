"""A hostile host that changes what an enclave runs by, document by document.

The real guest gets each document of a rich enclave with one field changed, and what it is told
unmeasured with more than it may be told. It must end with the reason, before it does anything.
"""

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloister_crds.config import Egress, EncryptedBodies, Healthcheck, Network, ServiceConfig, Shim
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.network.addresses import ApiEndpoint
from cloister_operator.enclave.plan import ApiIdentity, EnclavePlan
from tests.support.builders.enclave_plans import (
    SETTINGS,
    SURROUNDINGS,
    WEB,
    WORKER,
    config_of,
    measured_documents,
    plan_of,
)
from tests.support.builders.guest_policies import TINY
from tests.support.programs.measured_guest import measured_guest, measured_shim, write_measured

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(600),
]

NOT_MEASURED = 67
AUTHORITIES = "api-authorities.pem"
URL = "https://api.example.com:8443"
PARTS = {
    "agent.json": ("agent", "-spec"),
    "certificate.json": ("certificate", "-spec"),
    "container-0.json": ("exec", "-spec"),
    "container-1.json": ("check", "-spec"),
    "ehbp.json": ("ehbp", "-spec"),
    "gate.json": ("gate", "-spec"),
    "models.json": ("models", "-spec"),
    "network.json": ("net", "-plan"),
    "shim.json": ("", "-config"),
    "ssh.json": ("ssh", "-spec"),
}
"""A command that works by the document, and that does no harm where it is taken; "" = the shim."""
UNTOLD = {"exec", "check", "ehbp", "models"}
"""Commands that are complete by their documents."""
TOLD = {name: part for name, part in PARTS.items() if part[0] not in UNTOLD}
"""Those that are completed by what is not measured."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGVlZWVlZWVlZWVlZWVlZWVlZWVlZWVlZWVlZWVlZWVl"


def config() -> ServiceConfig:
    """Build a file that needs every part."""
    check = Healthcheck(
        test=("CMD", "true"),
        interval=timedelta(seconds=1),
        timeout=timedelta(seconds=1),
        retries=1,
        start_period=timedelta(),
    )
    return config_of(
        WEB.model_copy(update={"networks": ("inner", "outer"), "healthcheck": check}),
        WORKER.model_copy(update={"networks": ("inner",)}),
        networks={
            "inner": Network(),
            "outer": Network(egress=Egress.ALLOWLIST, allow=("api.example.com",)),
        },
        shim=Shim(
            upstream_port=8080,
            paths=("/v1/*",),
            upstream_container="web",
            authenticated=True,
            rate_limit=2.5,
            rate_burst=5,
            ehbp=EncryptedBodies.REQUIRED,
        ),
        models=(TINY,),
    )


def plan() -> EnclavePlan:
    """Build an enclave that has every part: a debug enclave, whose certificate is signed."""
    keys = [{"name": "me", "publicKey": KEY}]
    return plan_of(config=config(), debug=True, sshKeys=keys, signedCertificate=True)


def documents() -> dict[str, str]:
    """Build the measured documents."""
    return measured_documents(plan(), replace(SETTINGS, api=ApiIdentity(URL, "PEM\n")))


def told() -> dict[str, Any]:
    """Build what is not measured."""
    api = ApiEndpoint(URL, ("10.96.0.80",))
    return unmeasured_document(plan(), replace(SURROUNDINGS, api=api))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write everything as the operator does, and the measurement that names it."""
    place = tmp_path / "documents"
    place.mkdir()
    texts = documents()
    parsed = {name: json.loads(text) for name, text in texts.items() if name != AUTHORITIES}
    for api in (parsed["certificate.json"]["api"], parsed["gate.json"]["keys"]["api"]):
        api["caFile"] = str(place / AUTHORITIES)
    # A guest that took a changed plan would otherwise filter the packets of this machine.
    parsed["network.json"]["uplink"] = "absent0"
    write_measured(place, parsed, unmeasured=told(), texts={AUTHORITIES: texts[AUTHORITIES]})
    return place


def boot(folder: Path, name: str) -> tuple[int, str]:
    """Start the part that works by a document; it has to end by itself."""
    command, flag = PARTS[name]
    program = [measured_guest(), command] if command else [measured_shim()]
    done = subprocess.run(
        [*program, flag, str(folder / name)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value that is no object or list, and of every empty one."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))
    else:
        yield path


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path."""
    for key in path:
        document = document[key]
    return document


def changed(document: Any, path: tuple[Any, ...]) -> Any:
    """Return a document in which one value is another of its type."""
    copied = copy.deepcopy(document)
    parent, value = at(copied, path[:-1]), at(document, path)
    match value:
        case bool():
            parent[path[-1]] = not value
        case int() | float():
            parent[path[-1]] = value + 1
        case str():
            parent[path[-1]] = f"{value}x"
        case _:
            parent[path[-1]] = ["sh", "-c", "id"]
    return copied


@pytest.mark.parametrize("name", PARTS)
def test_every_field_of_every_document_is_what_was_measured(folder: Path, name: str) -> None:
    honest = json.loads((folder / name).read_text())
    paths = list(leaves(honest))
    assert paths
    for path in paths:
        (folder / name).write_text(json.dumps(changed(honest, path)))
        code, said = boot(folder, name)
        assert code == NOT_MEASURED, f"{path}: {code} {said}"
        assert f"not what was measured: {name} has the digest sha256:" in said


ATTACKS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a fingerprint of one's own": ("agent.json", ("attestation", "key"), "/tmp/mine.spki"),
    "the configuration of another file": ("agent.json", ("config",), "/tmp/config.yml"),
    "stages that nothing checks": ("agent.json", ("stages", "identity"), {"skipped": "x"}),
    "another program of the image": ("container-0.json", ("entrypoint",), ["sh", "-c"]),
    "another user": ("container-0.json", ("user",), "0:0"),
    "more capabilities": ("container-1.json", ("capabilities",), ["SYS_ADMIN"]),
    "a health check that opens a way": ("container-0.json", ("health", "test"), ["CMD", "sh"]),
    "shells": ("container-1.json", ("shells",), {"socket": "/x", "client": 1}),
    "a network that lets out": ("network.json", ("networks", 1, "egress"), "open"),
    "another allowed host": ("network.json", ("networks", 2, "allow"), ["evil.example"]),
    "one more way in": ("network.json", ("inbound",), [8443, 22]),
    "another API": ("gate.json", ("keys", "api", "url"), "https://evil.example"),
    "keys that are never checked again": ("gate.json", ("keys", "cacheSeconds"), 60),
    "another signer": ("certificate.json", ("api", "url"), "https://evil.example"),
    "a key in another directory": ("certificate.json", ("directory",), "/tmp"),
    "bodies for somebody else": ("ehbp.json", ("upstream",), "192.0.2.1:80"),
    "a key where others read": ("ehbp.json", ("keyDirectory",), "/run/cloister/service"),
    "bodies in clear": ("ehbp.json", ("required",), False),
    "other weights": ("models.json", ("models",), []),
    "a container to log in to": ("ssh.json", ("containers", 0, "name"), "worker"),
    "paths without keys": ("shim.json", ("gate", "keyed"), []),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_attacks_of_the_review(folder: Path, what: str) -> None:
    name, path, value = ATTACKS[what]
    document = json.loads((folder / name).read_text())
    at(document, path[:-1])[path[-1]] = value
    (folder / name).write_text(json.dumps(document))
    code, said = boot(folder, name)
    assert (code, f"not what was measured: {name}" in said) == (NOT_MEASURED, True), said


def test_two_documents_cannot_be_exchanged(folder: Path) -> None:
    (folder / "container-0.json").write_text((folder / "container-1.json").read_text())
    code, said = boot(folder, "container-0.json")
    assert (code, "container-0.json has the digest" in said) == (NOT_MEASURED, True), said


def test_a_document_that_the_measurement_does_not_name_is_not_read(folder: Path) -> None:
    shutil.copy(folder / "gate.json", folder / "certificate.json.bak")
    done = subprocess.run(
        [measured_guest(), "certificate", "-spec", "certificate.json.bak"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "does not name" in done.stderr) == (NOT_MEASURED, True), done.stderr


@pytest.mark.parametrize("name", ["gate.json", "certificate.json"])
def test_authorities_of_ones_own_are_refused(folder: Path, name: str) -> None:
    (folder / AUTHORITIES).write_text("PEM of somebody else\n")
    code, said = boot(folder, name)
    assert (code, f"{AUTHORITIES} has the digest" in said) == (NOT_MEASURED, True), said


MORE: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "a path": (("key",), "/tmp/mine.spki", "unknown field"),
    "a command": (("labels", "command"), ["sh"], "unknown field"),
    "an authority": (("cluster", "caFile"), "/tmp/ca.pem", "unknown field"),
    "an API": (("cluster", "url"), "https://evil.example", "unknown field"),
    "egress": (("cluster", "egress"), "open", "unknown field"),
    "a placeholder of Caddy's": (("hostnames", 0), "{env.API_KEY}", "hostnames[0]"),
    "a path as a name": (("hostnames", 0), "../../x.example", "hostnames[0]"),
    "a release that is another": (("version",), 2, "version"),
}


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("what", MORE)
def test_what_is_not_measured_has_no_place_for_more(folder: Path, what: str, name: str) -> None:
    path, value, reason = MORE[what]
    document = told()
    at(document, path[:-1])[path[-1]] = value
    (folder / "unmeasured.json").write_text(json.dumps(document))
    code, said = boot(folder, name)
    assert code not in {0, NOT_MEASURED}
    assert reason in said, said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api", ["172.30.0.2"]),
        ("api", ["127.0.0.1"]),
        ("resolvers", ["172.31.255.2:53"]),
        ("block", "8.8.0.0/16"),
        ("block", "172.31.0.0/16"),
    ],
)
def test_addresses_cannot_lead_into_the_enclave(folder: Path, field: str, value: Any) -> None:
    document = told()
    document["cluster"][field] = value
    (folder / "unmeasured.json").write_text(json.dumps(document))
    code, said = boot(folder, "network.json")
    assert code not in {0, NOT_MEASURED}
    assert f"cluster.{field}" in said, said


def test_a_measurement_that_is_missing_or_another_ends_every_part(folder: Path) -> None:
    for content in (None, "{}", '{"version":"cloister.dev/measurement/v1"}'):
        path = folder / "measured" / "measurement.json"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(content)
        for name in PARTS:
            code, said = boot(folder, name)
            assert (code, "not what was measured" in said) == (NOT_MEASURED, True), said

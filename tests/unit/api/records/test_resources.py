"""From objects beside containers to their records, and updates of all containers in each state."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, CachedResource
from cloister_api.errors import ApiError
from cloister_api.records.container import NO_LINKS
from cloister_api.records.resources import (
    deployment_record,
    domain_record,
    key_record,
    registry_record,
    secret_record,
    users_of,
)
from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.schemas.forms import ContainerUser
from cloister_api.schemas.resources import DeploymentResult, UpdateDeploymentRequest
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.containers.validation import Validation
from cloister_api.services.resources.deployments import (
    Deployments,
    InstanceUpdate,
    instance_update,
)
from cloister_crds.installation import InstallationSettings
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.organization import Role
from cloister_crds.names import RepositoryNames
from tests.support.programs.published_settings import settings_manifest
from tests.unit.api.records.test_container import SETTINGS, fields_of, held

META = {"namespace": "org-acme", "uid": "u1", "creationTimestamp": "2026-11-22T04:00:00Z"}
DEPLOYMENT = Deployment.read(
    {"metadata": {**META, "name": "d"}, "spec": {"repo": "team/web", "defaultStaging": True}}
)
HELD = CachedResource(DEPLOYMENT, "2026-11-22T05:00:00Z", {})
ORGANIZATION = Organization.read({"metadata": {"name": "acme"}, "spec": {"namespace": "org-acme"}})
USER: dict[str, Any] = {"id": "u7", "name": "web", "debug": True}
UPDATE = {
    "enclave": "e",
    "uid": "e1",
    "revision": "r",
    "tag": "v2",
    "type": "blue_green",
}


@pytest.mark.spec("7.2", "22.8")
@pytest.mark.parametrize(
    ("phase", "count"),
    [
        (None, "deploying_count"),
        ("pending", "deploying_count"),
        ("deploying", "deploying_count"),
        ("started", "deploying_count"),
        ("ready", "ready_count"),
        ("failed", "failed_count"),
        ("stopping", "stopped_count"),
        ("stopped", "stopped_count"),
    ],
)
def test_each_status_has_its_count(phase: str | None, count: str) -> None:
    one = held(status={"phase": phase} if phase else {}).container
    other = held({"repo": "team/other"}, {"phase": "ready"}).container
    record = fields_of(deployment_record(HELD, [one, other], RepositoryNames()))
    counts = {key: value for key, value in record.items() if key.endswith("_count")}
    assert counts == {
        "ready_count": 0,
        "failed_count": 0,
        "stopped_count": 0,
        "deploying_count": 0,
        "instance_count": 1,
        count: 1,
    }
    assert record.keys() - counts.keys() == {
        *("id", "repo", "default_staging", "created_at", "updated_at")
    }


@pytest.mark.spec("8.2")
def test_a_secret_shows_everything_but_its_value() -> None:
    spec = {"name": "API_KEY", "secretRef": {"name": "core"}}
    status = {"valueUpdatedAt": "2026-11-22T05:00:00Z"}
    secret = Secret.read({"metadata": {**META, "name": "s"}, "spec": spec, "status": status})
    assert fields_of(secret_record(secret, [ContainerUser(**USER)])) == {
        "id": "u1",
        "name": "API_KEY",
        "created_at": "2026-11-22T04:00:00Z",
        "updated_at": "2026-11-22T05:00:00Z",
        "used_by": ["web"],
        "used_by_containers": [USER],
    }


@pytest.mark.spec("24.7")
def test_a_production_and_a_debug_container_of_one_name_are_two_users() -> None:
    debug, production = held({"name": "web", "debug": True}, uid="u2"), held(uid="u1")
    other = held({"name": "app"}, uid="u3")
    users = users_of(each.container for each in (debug, production, other))
    assert [(each.id, each.name, each.debug) for each in users] == [
        ("u3", "app", False),
        ("u1", "web", False),
        ("u2", "web", True),
    ]


def test_an_ssh_key_shows_its_type() -> None:
    spec = {"publicKey": "ssh-ed25519 AAAA ada"}
    key = SSHKey.read({"metadata": {**META, "name": "ada"}, "spec": spec})
    assert fields_of(key_record(key, ())) == {
        "id": "u1",
        "name": "ada",
        "key_type": "ssh-ed25519",
        "created_at": "2026-11-22T04:00:00Z",
        "used_by": [],
        "used_by_containers": [],
    }


@pytest.mark.spec("1.3", "24.3")
@pytest.mark.parametrize("configured", [None, False, True])
def test_a_domain_shows_its_records_and_null_where_nothing_is_known(
    configured: object,
) -> None:
    records = {
        "txtName": "_cloister.api.example.test",
        "txtValue": "cloister-verification=api.example.test:abc",
        "cnameTarget": "0123.dns.test",
    }
    status = {"records": records, "cnameConfigured": configured}
    body = {
        "metadata": {**META, "name": "d"},
        "spec": {"domain": "api.example.test"},
        "status": status,
    }
    assert fields_of(domain_record(Domain.read(body), ())) == {
        "id": "u1",
        "domain": "api.example.test",
        "verification_nonce": "abc",
        "cname_hash": "0123",
        "verified": False,
        "verified_at": None,
        "created_at": "2026-11-22T04:00:00Z",
        "used_by": [],
        "used_by_containers": [],
        "txt_record_host": "_cloister.api.example.test",
        "txt_record_value": "cloister-verification=api.example.test:abc",
        "cname_target": "0123.dns.test",
        "cname_configured": configured,
        "checked_at": None,
        "lost_at": None,
        "message": "",
    }


@pytest.mark.spec("24.3")
def test_a_domain_shows_what_the_last_check_found() -> None:
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "DomainLost",
        "message": "the TXT record is gone; create it again",
        "lastTransitionTime": "2026-11-22T05:00:00Z",
    }
    status = {
        "conditions": [ready],
        "checkedAt": "2026-11-22T06:00:00.5Z",
        "lostAt": "2026-11-22T05:00:00Z",
    }
    body = {
        "metadata": {**META, "name": "d"},
        "spec": {"domain": "api.example.test"},
        "status": status,
    }
    shown = fields_of(domain_record(Domain.read(body), ()))
    assert (shown["checked_at"], shown["lost_at"], shown["message"]) == (
        "2026-11-22T06:00:00Z",
        "2026-11-22T05:00:00Z",
        "the TXT record is gone; create it again",
    )


@pytest.mark.spec("8.16")
@pytest.mark.parametrize("expired", [False, True])
def test_credentials_tell_whether_they_are_there_and_expired(expired: object) -> None:
    assert fields_of(registry_record(None)) == {"has_credentials": False, "expired": False}
    spec = {"registry": "ghcr", "secretRef": {"name": "core", "key": ".dockerconfigjson"}}
    status = {
        "expired": expired,
        "username": "ada",
        "valueUpdatedAt": "2026-11-22T05:00:00Z",
    }
    body = {"metadata": {**META, "name": "ghcr"}, "spec": spec, "status": status}
    assert fields_of(registry_record(RegistryCredential.read(body))) == {
        "has_credentials": True,
        "username": "ada",
        "updated_at": "2026-11-22T05:00:00Z",
        "expired": expired,
    }


class Relaunching:
    """Takes relaunches, or refuses them."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.changes: list[RelaunchRequest] = []

    async def relaunch(
        self, _: Principal, one: CachedContainer, body: RelaunchRequest
    ) -> CachedContainer:
        """Take one."""
        if self.error is not None:
            raise self.error
        self.changes.append(body)
        return one


async def updated(one: CachedContainer, updater: Relaunching) -> DeploymentResult:
    settings = SimpleNamespace(gitops_managers=(), write_wait_seconds=0)
    nothing = cast("Any", None)
    base = cast("Any", SimpleNamespace(client=None, cache=None, settings=settings))
    service = Deployments(base, nothing, nothing, SETTINGS)
    body = InstanceUpdate(tag="v2", relaunch_staging=True)
    principal = Principal("k", "ada", ORGANIZATION, role=Role.ADMIN)
    relaunching = cast("ContainerUpdater", updater)
    return await service._update_one(principal, DEPLOYMENT, one, body, relaunching, NO_LINKS)


@pytest.mark.spec("23.5")
@pytest.mark.parametrize(
    ("status", "word", "error"),
    [
        ({}, "skipped", "instance is not running"),
        ({"phase": "pending"}, "skipped", "instance is not running"),
        ({"phase": "deploying"}, "skipped", "instance is not running"),
        ({"phase": "started"}, "skipped", "instance is not running"),
        ({"phase": "stopping"}, "skipped", "instance is not running"),
        ({"phase": "stopped"}, "skipped", "instance is not running"),
        ({"phase": "ready"}, "updating", None),
        ({"phase": "failed"}, "updating", None),
        (
            {"phase": "ready", "update": {**UPDATE, "status": "started"}},
            "skipped",
            "update already in progress",
        ),
        (
            {"phase": "ready", "update": {**UPDATE, "status": "ready"}},
            "skipped",
            "update already in progress",
        ),
        ({"phase": "ready", "update": {**UPDATE, "status": "failed"}}, "updating", None),
    ],
)
async def test_an_update_of_all_takes_those_that_are_ready_or_failed(
    status: dict[str, Any], word: str, error: str | None
) -> None:
    updater = Relaunching()
    result = await updated(held(status=status), updater)
    assert (result.container_id, result.name) == ("u1", "web")
    assert (result.status, result.error) == (word, error)
    assert (result.container is not None) is (word == "updating")
    assert len(updater.changes) == (word == "updating")


@pytest.mark.spec("23.4")
async def test_an_instance_that_is_refused_has_failed_with_the_reason() -> None:
    refusing = Relaunching(ApiError(409, "CONFLICT", "flux manages tag"))
    result = await updated(held(status={"phase": "ready"}), refusing)
    assert (result.status, result.error) == ("failed", "flux manages tag")
    assert result.container is None


@pytest.mark.spec("21.14")
def test_without_hosts_the_list_is_empty() -> None:
    """Clients use it as their log-in check, so it answers all the same."""
    cache = SimpleNamespace(host_list=lambda: ())
    nothing = cast("Any", None)
    installation = InstallationSettings.read(settings_manifest("c.test"))
    base = cast("Any", SimpleNamespace(cache=cache, installation=installation))
    service = Validation(base, nothing, nothing, nothing, nothing)
    assert service.hosts() == []


@pytest.mark.parametrize(
    ("default", "given", "gpus", "staging"),
    [
        (True, None, 0, True),
        (True, None, 1, True),
        (True, None, 8, False),
        (False, None, 8, False),
        (True, True, 8, True),
        (True, False, 0, False),
    ],
)
def test_a_default_of_staging_counts_as_false_with_more_than_one_gpu(
    *, default: bool, given: bool | None, gpus: int, staging: bool
) -> None:
    one = Container.read(
        {
            "metadata": {"name": "web", "namespace": "org-acme"},
            "spec": {"repo": "acme/web", "tag": "v1"},
            "status": {"resources": {"cpus": 2, "memoryMB": 8192, "gpus": gpus}},
        }
    )
    body = UpdateDeploymentRequest(tag="v2", staging=given)
    update = instance_update(one, body, None, default_staging=default)
    assert (update.tag, update.staging, update.relaunch_staging) == ("v2", None, staging)

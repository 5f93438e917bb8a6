"""Rules that pydantic keeps, in the words that the API server uses as well."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from cloister_crds.kinds import KINDS, Container, Host, Organization, RegistryCredential
from cloister_crds.kinds.container import ContainerSpec, HistoryEntry
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.meta import Condition, Model
from cloister_crds.kinds.organization import Limits
from cloister_crds.kinds.request import Variable
from cloister_crds.schema.markers import Cel, immutable, matches


def container(object_name: str = "web", /, **spec: Any) -> Container:
    """Read a Container as it comes from the API."""
    body = {"metadata": {"name": object_name}, "spec": {"repo": "acme/web", "tag": "v1", **spec}}
    return Container.read(body)


def problems(error: pytest.ExceptionInfo[ValidationError]) -> dict[str, str]:
    """Return path and sentence of each problem."""
    return {
        ".".join(str(part) for part in problem["loc"]): problem["msg"]
        for problem in error.value.errors()
    }


def test_a_small_container_has_its_defaults() -> None:
    spec = container().spec
    assert spec.state == "Running"
    assert spec.github_connected is True
    assert spec.staging is None
    assert spec.variables == ()


@pytest.mark.spec("12.1")
def test_an_organization_may_have_ten_containers_unless_said() -> None:
    """Limits (spec 12)."""
    limits = Limits()
    assert limits.containers == 10
    assert limits.cpus == (2, 4, 8, 16, 32)
    assert limits.memory == (8192, 16384, 32768, 65536, 131072, 262144, 524288)
    assert limits.gpus == (1, 8)
    assert Limits(containers=25).containers == 25


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "ssh keys in production": (
        {"sshKeys": ["me"]},
        "spec.sshKeys",
        "sshKeys are for debug enclaves only; set debug: true or leave sshKeys out",
    ),
    "no TEE in production": (
        {"disableConfidential": True},
        "spec.disableConfidential",
        (
            "disableConfidential is for debug enclaves only; set debug: true or leave "
            "disableConfidential out"
        ),
    ),
    "debug that follows releases": (
        {"debug": True, "autoUpdate": True},
        "spec.autoUpdate",
        "autoUpdate is for production only; leave out debug or autoUpdate",
    ),
    "too much text in variables": (
        {"variables": [{"name": f"A{i}", "value": "x" * 32_767} for i in range(4)]},
        "spec.variables",
        (
            "variables have more than 131072 bytes, names and values together; put large values "
            "into the image or fetch them at start"
        ),
    ),
    "few characters of many bytes in variables": (
        {"variables": [{"name": "A", "value": "\N{GRINNING FACE}" * 32_768}]},
        "spec.variables",
        (
            "variables have more than 131072 bytes, names and values together; put large values "
            "into the image or fetch them at start"
        ),
    ),
    "a secret twice": (
        {"secrets": ["A", "A"]},
        "spec.secrets",
        "A is listed twice; remove one of the two",
    ),
    "a variable twice": (
        {"variables": [{"name": "A"}, {"name": "A"}]},
        "spec.variables",
        "A is listed twice; remove one of the two",
    ),
    "a commit cut short": (
        {"commit": "abc"},
        "spec.commit",
        "commit is written in full: 40 lowercase hexadecimal digits",
    ),
    "a line break after a name": (
        {"name": "web\n"},
        "spec.name",
        "name is of lowercase letters, digits and hyphens, with no hyphen at the ends",
    ),
    "a word for true": ({"debug": "true"}, "spec.debug", "Input should be a valid boolean"),
    "a number for true": ({"debug": 1}, "spec.debug", "Input should be a valid boolean"),
    "a word for a number": ({"gpus": "1"}, "spec.gpus", "Input should be a valid integer"),
    "a part of a GPU": ({"gpus": 0.5}, "spec.gpus", "Input should be a valid integer"),
}


@pytest.mark.spec("12.14")
@pytest.mark.parametrize("what", WRONG)
def test_each_wrong_field_is_named_with_its_remedy(what: str) -> None:
    spec, field, sentence = WRONG[what]
    with pytest.raises(ValidationError) as caught:
        container(**spec)
    assert problems(caught) == {field: sentence}


def test_all_broken_rules_of_an_object_are_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        container(sshKeys=["me"], disableConfidential=True)
    assert problems(caught).keys() == {"spec.sshKeys", "spec.disableConfidential"}


@pytest.mark.parametrize("name", ["web.debug", "x" * 65, "a..b"])
def test_a_name_that_no_host_name_takes_needs_another_beside(name: str) -> None:
    with pytest.raises(ValidationError):
        container(name)
    if name == "web.debug":
        assert container(name, name="web").display_name == "web"


def test_null_is_unset_as_for_the_server() -> None:
    assert container(commit=None, debug=None, variables=None) == container()
    with pytest.raises(ValidationError):
        container(tag=None)


def test_a_number_without_fraction_is_whole() -> None:
    assert container(gpus=2.0).spec.gpus == 2


def test_unknown_fields_are_dropped_as_the_server_prunes_them() -> None:
    assert container(unknown=1) == container()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.INFO.kind)
def test_names_of_objects_are_dns_names(kind: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({"metadata": {"name": "Not_A_Name"}})
    assert "metadata.name" in problems(caught)


@pytest.mark.parametrize("name", ["default", "cloister-system", "kube-system", "kube-x"])
def test_namespaces_of_the_system_are_no_organizations(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Organization.read({"metadata": {"name": "acme"}, "spec": {"namespace": name}})
    assert "choose one for only this Organization" in problems(caught)["spec.namespace"]


@pytest.mark.parametrize(("slug", "right"), [("acme", True), ("x" * 63, True), ("x" * 64, False)])
def test_a_slug_is_a_label_of_a_host_name(slug: str, *, right: bool) -> None:
    body = {"metadata": {"name": slug}, "spec": {"namespace": "org-acme"}}
    if right:
        assert Organization.read(body).metadata.name == slug
    else:
        with pytest.raises(ValidationError, match="is part of host names"):
            Organization.read(body)


def test_sets_of_numbers_take_no_fractions_and_nothing_twice() -> None:
    assert Limits.model_validate({"cpus": [2, 4]}).cpus == (2, 4)
    for wrong in ([2.0], [2, 2]):
        with pytest.raises(ValidationError):
            Limits.model_validate({"cpus": wrong})


POD = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}
NODE = {"tee": "TDX", "teeUnit": "Node", "attestationService": "unix:///run/aa/api.sock"}
POLICY = {"name": "policy.rego", "content": "package agent_policy"}

CONFIDENTIAL: dict[str, tuple[dict[str, Any], str, str]] = {
    "no unit": ({"tee": "SNP"}, "spec.teeUnit", "teeUnit is needed with a tee"),
    "a unit of nothing": (
        {"teeUnit": "Pod", "runtimeClassName": "kata"},
        "spec.teeUnit",
        "no meaning with tee None",
    ),
    "no runtime class": (
        {"tee": "SNP", "teeUnit": "Pod"},
        "spec.runtimeClassName",
        "name the class that starts a confidential machine",
    ),
    "initdata that nothing measures": (
        {**NODE, "initdata": [POLICY]},
        "spec.initdata",
        "initdata is for teeUnit Pod only",
    ),
    "the platform's own file": (
        {**POD, "initdata": [{"name": "measurement.json", "content": ""}]},
        "spec.initdata",
        "the platform's own",
    ),
    "too long a policy": (
        {**POD, "initdata": [{"name": n, "content": "x" * 70_000} for n in ("a", "b")]},
        "spec.initdata",
        "more than 131072 characters together",
    ),
    "a service without TEE": (
        {"attestationService": "http://127.0.0.1:8006"},
        "spec.attestationService",
        "no meaning with tee None",
    ),
    "no socket of the node": (
        {**NODE, "attestationService": "http://127.0.0.1:8006"},
        "spec.attestationService",
        "needed with teeUnit Node as the socket",
    ),
    "a socket of another machine": (
        {**POD, "attestationService": "unix:///run/aa.sock"},
        "spec.attestationService",
        "an address on the loopback",
    ),
    "an address elsewhere": (
        {**POD, "attestationService": "http://10.0.0.1:8006"},
        "spec.attestationService",
        "attestationService is http://127.0.0.1:PORT or unix:///PATH",
    ),
}


GPU_RULES: dict[str, tuple[dict[str, Any], str, str]] = {
    "of nobody": ({"type": "H100"}, "spec.gpu.resource", "set one of resource and deviceClass"),
    "of both": (
        {"resource": "nvidia.com/gpu", "deviceClass": "gpu.nvidia.com"},
        "spec.gpu.resource",
        "a device plugin, or by a driver of Dynamic Resource Allocation",
    ),
    "too many for a claim": (
        {"deviceClass": "gpu.nvidia.com", "counts": [1, 33]},
        "spec.gpu.counts",
        "counts are at most 32 with deviceClass",
    ),
    "exporters by TLS": (
        {"resource": "nvidia.com/gpu", "metrics": "https://dcgm.gpus.svc:9400/metrics"},
        "spec.gpu.metrics",
        "metrics is the address of DCGM exporters, such as http://",
    ),
}


@pytest.mark.parametrize("what", GPU_RULES)
def test_gpus_of_a_host_say_what_is_wrong(what: str) -> None:
    gpu, field, sentence = GPU_RULES[what]
    with pytest.raises(ValidationError) as caught:
        Host.read({"metadata": {"name": "gpus"}, "spec": {"gpu": gpu}})
    found = problems(caught)
    assert list(found) == [field]
    assert sentence in found[field]


@pytest.mark.parametrize("what", CONFIDENTIAL)
def test_a_confidential_host_says_what_is_missing(what: str) -> None:
    spec, field, sentence = CONFIDENTIAL[what]
    with pytest.raises(ValidationError) as caught:
        Host.read({"metadata": {"name": "tee"}, "spec": spec})
    found = problems(caught)
    assert list(found) == [field]
    assert sentence in found[field]


@pytest.mark.parametrize("spec", [POD, NODE, {**POD, "initdata": [POLICY]}])
def test_both_kinds_of_confidential_hosts_can_be_said(spec: dict[str, Any]) -> None:
    assert Host.read({"metadata": {"name": "tee"}, "spec": spec}).spec.tee_unit is not None


def test_only_hosts_without_tee_are_overcommitted() -> None:
    spec = {**POD, "overcommit": {"cpuPercent": 50}}
    with pytest.raises(ValidationError, match="overcommit is for tee None only"):
        Host.read({"metadata": {"name": "snp"}, "spec": spec})
    assert Host.read(
        {"metadata": {"name": "plain"}, "spec": {"overcommit": {"cpuPercent": 50}}}
    ).spec.overcommit


def test_a_toleration_of_everything_has_no_value() -> None:
    for wrong in ({"operator": "Exists", "value": "a"}, {"operator": "Equal"}):
        with pytest.raises(ValidationError):
            Host.read({"metadata": {"name": "h"}, "spec": {"tolerations": [wrong]}})


def test_a_claim_is_named_after_its_host() -> None:
    spec = {"holder": {"namespace": "org-acme", "name": "web"}}
    claim = HostnameClaim.read({"metadata": {"name": "web.acme.example.com"}, "spec": spec})
    assert claim.spec.holder.name == "web"
    with pytest.raises(ValidationError, match=r"metadata\.name is the host name"):
        HostnameClaim.read({"metadata": {"name": "web"}, "spec": spec})


def test_a_credential_is_named_after_its_registry() -> None:
    spec = {"registry": "ghcr", "secretRef": {"name": "ghcr"}}
    credential = RegistryCredential.read({"metadata": {"name": "ghcr"}, "spec": spec})
    assert credential.spec.secret_ref.key == "value"
    with pytest.raises(ValidationError, match=r"metadata\.name is the registry"):
        RegistryCredential.read({"metadata": {"name": "mine"}, "spec": spec})


CONDITION = {"type": "Ready", "status": "True", "reason": "Serving"}


@pytest.mark.parametrize(
    "time",
    [
        "2026-02-30T12:00:00Z",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00+01:00",
        1769860800,
        ["2026-01-31T12:00:00Z"],
        "0999-01-31T12:00:00Z",
    ],
)
def test_times_are_written_one_way(time: Any) -> None:
    with pytest.raises(ValidationError):
        Condition.model_validate({**CONDITION, "lastTransitionTime": time})


def test_times_are_kept_and_written_in_utc() -> None:
    east = datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1)))
    condition = Condition.model_validate({**CONDITION, "lastTransitionTime": east})
    assert condition.last_transition_time.tzinfo is UTC
    assert condition.wire()["lastTransitionTime"] == "2026-01-31T12:00:00Z"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="zone"):
        HistoryEntry(enclave="a", tag="a", commit="a", outcome="a", at=datetime(2026, 1, 31))  # noqa: DTZ001 - what is refused


def test_every_rule_that_is_not_about_a_change_is_asked_here_too() -> None:
    rules = [rule for model in models(Model) for rule in model.CEL]
    assert rules
    for rule in rules:
        assert ("oldSelf" in rule.rule) is (rule.check is None), rule.message


def models(model: type[Model]) -> Iterator[type[Model]]:
    """Return every model of the kinds."""
    for below in model.__subclasses__():
        if below.__module__.startswith("cloister_crds.kinds"):
            yield below
            yield from models(below)


@pytest.mark.parametrize("pattern", ["a$", "^a", "^it's$"])
def test_a_pattern_that_would_mean_two_things_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="must begin with"):
        matches(pattern, "no")


def test_rules_about_a_change_let_every_value_pass_here() -> None:
    assert immutable("tag", "do not").check is None
    assert Cel("true", "no", check=bool).error().message() == "no"


def test_a_container_is_written_as_it_was_read() -> None:
    made = container(variables=[{"name": "A", "value": "1"}])
    assert made.spec == ContainerSpec(
        repo="acme/web", tag="v1", variables=(Variable(name="A", value="1"),)
    )
    assert Container.read(made.manifest()) == made
    assert "status" not in made.manifest()

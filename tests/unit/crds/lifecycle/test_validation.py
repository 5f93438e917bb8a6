"""Organization-level validation: each rule alone, and all errors at once."""

from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.config.model import (
    ContainerConfig,
    Egress,
    EnvEntry,
    ModelSpec,
    Network,
    Shim,
    TlsMode,
)
from cloister_crds.kinds.host import Host, ModelStore
from cloister_crds.kinds.host_devices import Device, Gpu
from cloister_crds.kinds.organization import Billing, Entitlements, Limits
from cloister_crds.kinds.request import Variable
from cloister_crds.lifecycle.admission.validation import (
    RequestFacts,
    errors_of,
    file_problems,
    spec_problems,
    validate_for_organization,
)
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.lifecycle.state.observed import Failed
from cloister_crds.names import RepositoryNames
from cloister_crds.problems import Problem, Severity
from tests.support.builders.resources import (
    CONFIDENTIAL,
    IMAGE,
    NOW,
    container_of,
    file_of,
    host_of,
    organization_of,
    release_of,
    secret_of,
)


def ask(**fields: Any) -> RequestFacts:
    """Build a question about which nothing is wrong."""
    given = {
        "name": "web",
        "spec": container_of().spec,
        "organization": organization_of(),
        "hosts": (host_of(),),
        "rank": 0,
        "release": release_of(),
        **fields,
    }
    return RequestFacts(**given)


def spec_of(**fields: Any) -> Any:
    """Build a spec."""
    return container_of(**fields).spec


def found(question: RequestFacts) -> set[tuple[str, str]]:
    """Return field and code of every error."""
    return {(each.field, each.code) for each in errors_of(validate_for_organization(question))}


def unready(host: Host, reason: str) -> Host:
    """Return a Host that is not ready."""
    conditions = merge(
        (),
        [ConditionUpdate("Ready", status=False, reason=reason, message="why")],
        generation=1,
        now=NOW,
    )
    return host.model_copy(
        update={"status": host.status.model_copy(update={"conditions": conditions})}
    )


def test_nothing_is_wrong_with_a_good_request() -> None:
    assert validate_for_organization(ask()) == ()


WRONG_SPECS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "nobody's namespace": (
        {"organization": None},
        ("metadata.namespace", "OrganizationNotFound"),
    ),
    "long name": ({"name": "a" * 65}, ("spec.name", "InvalidName")),
    "name with a dot": ({"name": "web.debug"}, ("spec.name", "InvalidName")),
    "no subscription": (
        {"organization": organization_of(subscribed=False)},
        ("", "SubscriptionRequired"),
    ),
    "beyond the limit": (
        {"organization": organization_of(limits=Limits(containers=2)), "rank": 2},
        ("", "LimitReached"),
    ),
    "host without right": (
        {"spec": spec_of(host="plain")},
        ("spec.host", "EntitlementRequired"),
    ),
    "gpus without right": ({"spec": spec_of(gpus=1)}, ("spec.gpus", "EntitlementRequired")),
    "domain without right": (
        {"spec": spec_of(custom_domain="api.example.test")},
        ("spec.customDomain", "EntitlementRequired"),
    ),
    "no host of that name": (
        {
            "spec": spec_of(host="gone"),
            "organization": organization_of(entitlements=Entitlements(host_selection=True)),
        },
        ("spec.host", "HostNotFound"),
    ),
    "no default host": (
        {"hosts": (host_of(default=False),)},
        ("spec.host", "NoDefaultHost"),
    ),
    "host not ready": (
        {"hosts": (unready(host_of(), "NoNodes"),)},
        ("spec.host", "HostNotReady"),
    ),
    "secret that is not there": (
        {"spec": spec_of(secrets=("NOPE",))},
        ("spec.secrets[0]", "SecretNotFound"),
    ),
}


@pytest.mark.spec("12.9", "20.12")
@pytest.mark.parametrize(("fields", "want"), WRONG_SPECS.values(), ids=WRONG_SPECS)
def test_rules_of_a_spec(fields: dict[str, Any], want: tuple[str, str]) -> None:
    question = replace(ask(release=None), **fields)
    assert want in found(question)
    assert file_problems(question) == ()


@pytest.mark.spec("21.18")
def test_the_limit_speaks_of_a_reached_quota() -> None:
    limited = organization_of(limits=Limits(containers=0))
    (problem,) = spec_problems(ask(organization=limited, rank=0))
    assert "quota reached" in problem.message


def test_a_relaunch_is_not_counted() -> None:
    assert found(ask(organization=organization_of(limits=Limits(containers=0)), rank=None)) == set()


def test_what_the_payment_processor_says_wins() -> None:
    billing = Billing(container_subscription=False, customer_id="cus_1")
    organization = organization_of(billing=billing)
    paid = organization.model_copy(
        update={
            "status": organization.status.model_copy(
                update={"billing": Billing(container_subscription=True, customer_id="cus_1")}
            )
        }
    )
    assert found(ask(organization=organization)) == {("", "SubscriptionRequired")}
    assert found(ask(organization=paid)) == set()


TWO = (ContainerConfig(name="web", image=IMAGE), ContainerConfig(name="db", image=IMAGE))
SHARED = spec_of(accept_shared_network=True)
WRONG_FILES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "errors of the parser": (
        {"release": release_of(problems=(Problem("cpuz", "UnknownField", "no such field"),))},
        ("cpuz", "UnknownField"),
    ),
    "too large": ({"file_limit": 3}, ("", "ConfigFileTooLarge")),
    "cpus": ({"release": release_of(file_of(cpus=3))}, ("cpus", "ResourcesNotAllowed")),
    "memory": ({"release": release_of(file_of(memory=4096))}, ("memory", "ResourcesNotAllowed")),
    "gpus": ({"release": release_of(file_of(gpus=3))}, ("gpus", "ResourcesNotAllowed")),
    "gpus not entitled": (
        {"release": release_of(file_of(gpus=1))},
        ("gpus", "EntitlementRequired"),
    ),
    "networks": (
        {"release": release_of(file_of(networks={"out": Network(egress=Egress.OPEN)}))},
        ("networks", "SharedNetworkNotAccepted"),
    ),
    "containers that would share": (
        {"release": release_of(file_of(*TWO, cvm_version="0.10.0"))},
        ("containers", "SharedNetworkNotAccepted"),
    ),
    "secret of a container": (
        {
            "release": release_of(
                file_of(ContainerConfig(name="web", image=IMAGE, secrets=("A", "B"))),
            ),
            "secrets": (secret_of("A", repo="acme/site"),),
        },
        ("containers[0].secrets[1]", "SecretNotFound"),
    ),
    "image": (
        {"images": {IMAGE: Failed("ImageNotFound", "gone", transient=False, at=NOW)}},
        ("containers[0].image", "ImageNotFound"),
    ),
}


@pytest.mark.spec("12.9", "49.1", "49.2", "49.3", "49.4")
@pytest.mark.parametrize(("fields", "want"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_rules_of_a_file(fields: dict[str, Any], want: tuple[str, str]) -> None:
    question = ask(**fields)
    assert want in found(question)
    assert not {want} & {(each.field, each.code) for each in spec_problems(question)}


@pytest.mark.parametrize(
    "fields",
    [
        {"release": release_of(file_of(*TWO, cvm_version="0.9.9"))},
        {"release": release_of(file_of(cvm_version="0.10.0"))},
        {"release": release_of(file_of(*TWO, cvm_version="0.10.0")), "spec": SHARED},
        {"release": release_of(file_of(networks={"out": Network()})), "spec": SHARED},
    ],
    ids=["before networks", "one container", "accepted", "networks accepted"],
)
def test_networks_that_need_no_consent_or_have_it(fields: dict[str, Any]) -> None:
    assert found(ask(**fields)) == set()


@pytest.mark.spec("24.9")
def test_a_bound_secret_of_the_organization_and_one_of_the_repository_are_found() -> None:
    used = ContainerConfig(name="web", image=IMAGE, secrets=("A", "tls-key"))
    question = ask(
        release=release_of(file_of(used)),
        spec=spec_of(secrets=("tls-key",)),
        secrets=(secret_of("A", repo="acme/site"), secret_of("tls-key")),
    )
    assert validate_for_organization(question) == ()


@pytest.mark.spec("24.9")
def test_an_organization_secret_that_nobody_binds_is_no_missing_one() -> None:
    used = ContainerConfig(name="web", image=IMAGE, secrets=("A", "B"))
    question = ask(release=release_of(file_of(used)), secrets=(secret_of("A"),))
    assert found(question) == {
        ("containers[0].secrets[0]", "SecretNotBound"),
        ("containers[0].secrets[1]", "SecretNotFound"),
    }
    undecided = validate_for_organization(replace(question, binds_are_final=False))
    assert [(each.code, each.severity) for each in undecided] == [
        ("SecretNotBound", Severity.WARNING),
        ("SecretNotFound", Severity.ERROR),
    ]
    assert "add 'A' to spec.secrets" in undecided[0].message


@pytest.mark.spec("24.9")
def test_a_secret_of_another_repository_is_none() -> None:
    used = ContainerConfig(name="web", image=IMAGE, secrets=("A",))
    question = ask(release=release_of(file_of(used)), secrets=(secret_of("A", repo="acme/other"),))
    assert found(question) == {("containers[0].secrets[0]", "SecretNotFound")}


@pytest.mark.spec("7.1")
def test_the_source_decides_whether_case_tells_repositories_apart() -> None:
    used = ContainerConfig(name="web", image=IMAGE, secrets=("A",))
    question = ask(release=release_of(file_of(used)), secrets=(secret_of("A", repo="Acme/Site"),))
    assert found(question) == {("containers[0].secrets[0]", "SecretNotFound")}
    forge = replace(question, repositories=RepositoryNames(ignore_case=True))
    assert found(forge) == set()


@pytest.mark.spec("24.9")
def test_what_is_given_and_not_used_is_a_warning() -> None:
    used = ContainerConfig(
        name="web",
        image=IMAGE,
        env=(EnvEntry(name="MODE"), EnvEntry(name="DOMAIN"), EnvEntry(name="SET", value="1")),
    )
    question = ask(
        release=release_of(file_of(used)),
        spec=spec_of(secrets=("A",), variables=(Variable(name="SET", value="2"),)),
        secrets=(secret_of("A"),),
    )
    problems = validate_for_organization(question)
    assert {(each.field, each.code) for each in problems} == {
        ("spec.secrets[0]", "UnusedSecret"),
        ("spec.variables[0]", "UnusedVariable"),
        ("spec.variables", "VariableUnset"),
    }
    assert all(each.severity is Severity.WARNING for each in problems)
    assert errors_of(problems) == ()


@pytest.mark.spec("49.1", "49.2", "49.3", "49.4")
def test_all_errors_come_at_once() -> None:
    question = ask(
        organization=organization_of(subscribed=False, limits=Limits(containers=0)),
        release=release_of(file_of(cpus=3, memory=4096)),
        images={IMAGE: Failed("ImageNotFound", "gone", transient=False, at=NOW)},
    )
    assert found(question) == {
        ("", "SubscriptionRequired"),
        ("", "LimitReached"),
        ("cpus", "ResourcesNotAllowed"),
        ("memory", "ResourcesNotAllowed"),
        ("containers[0].image", "ImageNotFound"),
    }


def test_a_file_whose_shim_makes_its_key_runs_on_a_host_with_a_tee() -> None:
    own = Shim(
        upstream_port=80, paths=("/",), upstream_container="web", tls_mode=TlsMode.SELF_SIGNED
    )
    release, hosts = release_of(file_of(shim=own)), (host_of(**CONFIDENTIAL),)
    assert found(ask(release=release, hosts=hosts)) == set()


GPUS = organization_of(entitlements=Entitlements(gpu=True), limits=Limits(gpus=(1, 2, 8)))
STORE = ModelStore(directory="/srv/models")
MPK = f"{'ab' * 32}_4096_6493760e-f831-5d28-81b4-39e665a8095a"
MODEL = ModelSpec(
    name="tiny",
    repo="example/tiny",
    commit="0" * 40,
    mpk=MPK,
    root_hash="ab" * 32,
    offset=4096,
    uuid=MPK.split("_")[2],
)


def one(name: str = "web", **fields: Any) -> ContainerConfig:
    """Build a container of a file."""
    return ContainerConfig(name=name, image=IMAGE, **fields)


def with_gpus(name: str, gpus: Any) -> ContainerConfig:
    """Build a container with GPUs."""
    return one(name, runtime="nvidia", gpus=gpus)


PROVISIONS: dict[str, tuple[Host, tuple[ContainerConfig, ...], dict[str, Any], dict[str, Any], Any]]
PROVISIONS = {
    "no GPU on the host": (host_of(), (one(),), {"gpus": 1}, {}, ("gpus", "has no GPUs")),
    "a count that the host has not": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(8,))),
        (one(),),
        {"gpus": 1},
        {},
        ("gpus", "may have 8 GPUs"),
    ),
    "a count of spec that the host has not": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(1, 8))),
        (one(),),
        {"gpus": 1},
        {"gpus": 2},
        ("spec.gpus", "may have 1, 8 GPUs"),
    ),
    "ids that spec took away": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(1, 8))),
        (with_gpus("web", (0, 3)),),
        {"gpus": 8},
        {"gpus": 1},
        ("containers[0].gpus", "requests GPU 3; the enclave has 1 GPUs. Change spec.gpus"),
    ),
    "all GPUs that spec took away": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(1, 8))),
        (with_gpus("web", "all"),),
        {"gpus": 8},
        {"gpus": 0},
        ("containers[0].gpus", "requests all; the enclave has 0 GPUs"),
    ),
    "a GPU of two containers": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(1,))),
        (with_gpus("web", "all"), with_gpus("db", (0,))),
        {"gpus": 1},
        {},
        ("containers", "Containers web, db share GPU 0"),
    ),
    "a GPU of two containers, with the remedies": (
        host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(1,))),
        (with_gpus("web", "all"), with_gpus("db", "all")),
        {"gpus": 1},
        {},
        ("containers", "Name a Host with gpu.deviceClass, whose containers may share them"),
    ),
    "shared GPUs on a Host without": (
        host_of(),
        (with_gpus("web", "all"), with_gpus("db", "all")),
        {"gpus": 1},
        {},
        ("gpus", "has no GPUs"),
    ),
    "a device that is not offered": (
        host_of(devices=(Device(path="/dev/kvm", resource="devices.example/kvm"),)),
        (one(devices=("/dev/kvm", "/dev/fuse")),),
        {},
        {},
        ("containers[0].devices[1]", "all rights: /dev/kvm"),
    ),
    "a device at another path": (
        host_of(devices=(Device(path="/dev/kvm", resource="devices.example/kvm"),)),
        (one(devices=("/dev/kvm:/dev/vm",)),),
        {},
        {},
        ("containers[0].devices[0]", "is /dev/kvm:/dev/vm"),
    ),
    "a device with fewer rights": (
        host_of(devices=(Device(path="/dev/kvm", resource="devices.example/kvm"),)),
        (one(devices=("/dev/kvm:/dev/kvm:r",)),),
        {},
        {},
        ("containers[0].devices[0]", "is /dev/kvm:/dev/kvm:r"),
    ),
    "no store": (host_of(), (one(),), {"models": (MODEL,)}, {}, ("models", "no model store")),
    "a model that the store has not": (
        host_of(models=STORE.model_copy(update={"known": ()})),
        (one(),),
        {"models": (MODEL,)},
        {},
        ("models[0].mpk", f"has no model {MPK}"),
    ),
}


@pytest.mark.spec("42.32", "49.5")
@pytest.mark.parametrize(
    ("host", "containers", "file", "spec", "want"), PROVISIONS.values(), ids=PROVISIONS
)
def test_what_a_host_does_not_have(
    host: Host,
    containers: tuple[ContainerConfig, ...],
    file: dict[str, Any],
    spec: dict[str, Any],
    want: tuple[str, str],
) -> None:
    config = file_of(*containers, **file)
    problems = file_problems(
        ask(
            hosts=(host,),
            organization=GPUS,
            spec=spec_of(**spec),
            release=replace(release_of(), config=config),
        )
    )
    field, text = want
    assert [each.field for each in problems if text in each.message] == [field]


@pytest.mark.parametrize(
    ("host", "containers", "file"),
    [
        (
            host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=(8,))),
            (with_gpus("web", (0, 1)), with_gpus("db", 2), one("cache")),
            {"gpus": 8},
        ),
        (
            host_of(gpu=Gpu(device_class="gpu.example.com", counts=(8,))),
            (with_gpus("web", "all"), with_gpus("db", "all"), with_gpus("cache", (0, 1))),
            {"gpus": 8},
        ),
        (
            host_of(devices=(Device(path="/dev/kvm", resource="devices.example/kvm"),)),
            (one(devices=("/dev/kvm", "/dev/kvm:/dev/kvm:mrw")),),
            {},
        ),
        (host_of(models=STORE), (one(),), {"models": (MODEL,)}),
        (
            host_of(models=STORE.model_copy(update={"known": (MPK,)})),
            (one(),),
            {"models": (MODEL,)},
        ),
    ],
    ids=["GPUs", "shared GPUs", "devices", "a store of unknown models", "a known model"],
)
def test_what_a_host_has(
    host: Host, containers: tuple[ContainerConfig, ...], file: dict[str, Any]
) -> None:
    config = file_of(*containers, **file)
    question = ask(hosts=(host,), organization=GPUS, release=replace(release_of(), config=config))
    assert errors_of(file_problems(question)) == ()


@pytest.mark.parametrize("unit", ["node", "pod", "none"])
def test_only_a_machine_of_its_own_can_be_left(unit: str) -> None:
    node = {"tee": "TDX", "tee_unit": "Node", "attestation_service": "unix:///run/aa.sock"}
    hosts = {"node": host_of(**node), "pod": host_of(**CONFIDENTIAL), "none": host_of()}
    codes = found(ask(spec=spec_of(debug=True, disable_confidential=True), hosts=(hosts[unit],)))
    refused = ("spec.disableConfidential", "TeeOfTheNode")
    assert (refused in codes) is (unit == "node")

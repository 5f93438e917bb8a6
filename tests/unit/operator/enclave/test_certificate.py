"""What a signed enclave gets: the sidecar, its documents, a token, the way to the API."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_crds.config import Shim, TlsMode
from cloister_crds.names import token_audience
from cloister_operator.enclave import paths
from cloister_operator.enclave.built import build_snapshot
from cloister_operator.enclave.guest_config.certificate import certificate_document
from cloister_operator.enclave.network.addresses import ApiEndpoint, ClusterNetwork, ServicePods
from cloister_operator.enclave.network.network_policy import build_network_policy
from cloister_operator.enclave.plan import ApiIdentity, EnclavePlan
from cloister_operator.settings import OperatorSettings
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    WORKER,
    build_config_map,
    build_pod,
    config_of,
    host_of,
    plan_of,
)

PLACE = ApiEndpoint("https://api.example.com", ("192.0.2.1", "192.0.2.2"))
AROUND = ClusterNetwork(api=PLACE)
KNOWN = replace(SETTINGS, api=ApiIdentity(PLACE.url, "PEM\n"))


def signed(tls_mode: TlsMode | None = None) -> EnclavePlan:
    shim = Shim(upstream_port=8080, paths=("/",), upstream_container=WEB.name, tls_mode=tls_mode)
    return plan_of(config=config_of(WEB, WORKER, shim=shim), signedCertificate=True)


def documents(plan: EnclavePlan) -> dict[str, Any]:
    data: dict[str, str] = build_config_map(plan, KNOWN, AROUND)["data"]
    return {
        name: json.loads(text) if name.endswith(".json") else text for name, text in data.items()
    }


def test_the_sidecar_stands_before_the_containers_and_shares_the_key_with_the_shim_alone() -> None:
    pod = build_pod(signed(), SETTINGS)["spec"]
    (built,) = [each for each in pod["containers"] if each["name"] == "certificate"]
    rights = built["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"]) == (65005, 65532)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert "readinessProbe" not in built
    (shim,) = [each for each in pod["containers"] if each["name"] == "shim"]
    assert "env" not in shim
    everyone = [*pod["initContainers"], *pod["containers"]]
    places = {
        directory: [
            (each["name"], mount.get("readOnly", False))
            for each in everyone
            for mount in each["volumeMounts"]
            if mount["mountPath"] == directory
        ]
        for directory in (paths.TOKEN, paths.CERTIFICATE)
    }
    assert places == {
        paths.TOKEN: [("certificate", True)],
        # The agent reads the fingerprint; the key is for the shim's group, which it does not have.
        paths.CERTIFICATE: [("agent", True), ("certificate", False), ("shim", True)],
    }
    (agent,) = (each for each in everyone if each["name"] == "agent")
    assert agent["securityContext"]["runAsGroup"] == 65003
    memory = next(each for each in pod["volumes"] if each["name"] == "certificate")
    assert memory["emptyDir"]["medium"] == "Memory"


def test_the_token_is_the_kubelets_for_this_enclave_and_in_no_secret() -> None:
    plan = signed()
    pod = build_pod(plan, SETTINGS)["spec"]
    assert pod["automountServiceAccountToken"] is False
    (projected,) = (each for each in pod["volumes"] if "projected" in each)
    audience = token_audience(plan.enclave.metadata.uid)
    source = {"audience": audience, "expirationSeconds": 600, "path": "token"}
    assert projected["projected"]["sources"] == [{"serviceAccountToken": source}]
    values = {"API_KEY": b"k", "tls-key": b"t", "another": b"a"}
    assert set(build_snapshot(plan, values)["data"]) == {"API_KEY", "tls-key"}
    assert not any(
        "projected" in each for each in build_pod(plan_of(WEB), SETTINGS)["spec"]["volumes"]
    )


def test_the_documents_name_api_hosts_and_places() -> None:
    found = documents(signed())
    assert found[paths.CERTIFICATE_KEY] == {
        "version": 2,
        "api": {
            "url": "https://api.example.com",
            "caFile": "/etc/cloister-certificate/api-authorities.pem",
        },
        "tokenFile": "/run/cloister/token/token",
        "directory": "/run/cloister/certificate",
        "shimStore": "/run/cloister/certificate/shim/certificates/certificate.invalid-directory",
        "terminationFile": "/dev/termination-log",
    }
    assert found[paths.AUTHORITIES_KEY] == "PEM\n"
    cars = {each["name"]: each for each in found[paths.NETWORK_KEY]["sideCars"]}
    assert cars["certificate"] == {
        "name": "certificate",
        "uid": 65005,
        "destinations": [],
        "apiPort": 443,
    }
    told = found[paths.UNMEASURED_KEY]
    assert told["hostnames"] == ["web.acme.containers.example"]
    assert told["cluster"]["api"] == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ({"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata"}, "http://127.0.0.1:8006"),
        (
            {"tee": "TDX", "teeUnit": "Node", "attestationService": "unix:///run/aa/api.sock"},
            "unix:///run/aa/api.sock",
        ),
    ],
)
def test_of_a_processor_with_a_tee_it_keeps_what_the_maker_publishes(
    host: dict[str, Any], service: str
) -> None:
    plan = replace(signed(), host=host_of(**host))
    found = certificate_document(ApiIdentity(PLACE.url, ""), plan.host.spec)
    assert found["collateral"] == {"tee": host["tee"], "service": service}
    containers = build_pod(plan, SETTINGS)["spec"]["containers"]
    (built,) = [each for each in containers if each["name"] == "certificate"]
    sockets = [each for each in built["volumeMounts"] if each["name"] == "attestation"]
    assert len(sockets) == service.startswith("unix://")
    assert all(each["readOnly"] for each in sockets)


def test_the_shim_serves_what_the_sidecar_stores() -> None:
    assert documents(signed())[paths.SHIM_KEY]["store"] == paths.SHIM_STORE


@pytest.mark.parametrize("plan", [plan_of(WEB), signed(TlsMode.SELF_SIGNED)])
def test_unsigned_or_when_declined_the_shim_signs_by_itself(plan: EnclavePlan) -> None:
    pod = build_pod(plan, SETTINGS)["spec"]
    assert "certificate" not in [each["name"] for each in pod["containers"]]
    found = documents(plan)
    assert paths.CERTIFICATE_KEY not in found
    assert "store" not in found[paths.SHIM_KEY]


@pytest.mark.parametrize("plan", [plan_of(WEB), signed(TlsMode.SELF_SIGNED)])
def test_with_a_tee_the_evidence_is_for_the_key_that_the_shim_presents(plan: EnclavePlan) -> None:
    host = host_of(tee="SNP", teeUnit="Pod", runtimeClassName="kata")
    agent = documents(replace(plan, host=host))[paths.AGENT_KEY]
    assert agent["attestation"] == {"bindsKey": False, "service": "http://127.0.0.1:8006"}
    assert agent["shim"] == "127.0.0.1:8443"
    assert agent["stages"]["cpu-attestation"] == {"evidence": True}


def test_the_second_network_policy_lets_the_api_through() -> None:
    egress = build_network_policy("acme", "org-acme", api=PLACE)["spec"]["egress"]
    assert {
        "to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}, {"ipBlock": {"cidr": "192.0.2.2/32"}}],
        "ports": [{"port": 443, "protocol": "TCP"}],
    } in egress


def test_the_network_policy_permits_the_pods_of_services_too() -> None:
    """A plugin that judges a connection after its translation sees no address of a Service."""
    of_api = ServicePods("cloister-system", {"app": "api"}, 8080)
    of_names = ServicePods("dns", {"app": "names"}, 5353)
    egress = build_network_policy(
        "acme", "org-acme", api=PLACE, api_pods=of_api, resolver_pods=[of_names]
    )["spec"]["egress"]
    found = [rule for rule in egress if "podSelector" in rule["to"][0]]
    selectors = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": {"matchLabels": labels},
        }
        for namespace, labels in (("dns", {"app": "names"}), ("cloister-system", {"app": "api"}))
    ]
    assert found == [
        {
            "to": [selectors[0]],
            "ports": [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}],
        },
        {"to": [selectors[1]], "ports": [{"port": 8080, "protocol": "TCP"}]},
    ]
    without = build_network_policy("acme", "org-acme", api_pods=of_api)["spec"]["egress"]
    assert not [rule for rule in without if "podSelector" in rule["to"][0]]


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://192.0.2.1:8080", 8080), ("http://a.example", 80), ("https://a.example/", 443)],
)
def test_the_port_follows_from_the_address(url: str, port: int) -> None:
    assert ApiEndpoint(url, ()).port == port


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"signedCertificates": True}, "needs apiAddress"),
        (
            {"apiAddress": "http://a.example", "apiAuthorities": "ca.pem"},
            "needs an apiAddress with https",
        ),
        ({"apiAddress": "https://a.example/path"}, "apiAddress"),
        ({"apiAddress": "a.example"}, "apiAddress"),
        (
            {"enclaveNetwork": {"apiPods": {"labels": {"app": "proxy"}, "port": 8443}}},
            "enclaveNetwork.apiPods needs apiAddress",
        ),
        (
            {"enclaveNetwork": {"resolverPods": [{"labels": {"app": "dns"}, "port": 5353}]}},
            "resolverPods needs resolvers",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    image = f"registry.example/x@sha256:{'0' * 64}"
    usual = {
        "containersDomain": "containers.example",
        "shimImage": image,
        "guestImage": image,
        "sources": {"kind": "git", "base": "/srv/git"},
    }
    with pytest.raises(ValidationError, match=words):
        OperatorSettings.model_validate(usual | settings)

"""The exact bytes of every record: order of fields, absent fields, nulls, times and numbers."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloister_api.ledger.keys.api_keys import ApiKey
from cloister_api.payments.transactions import Charge, Invoice, charge_record, invoice_record
from cloister_api.records.container import container_record, host_record, update_record
from cloister_api.records.resources import (
    deployment_record,
    domain_record,
    key_record,
    registry_record,
    secret_record,
)
from cloister_api.schemas.accounts import ModelUsage, TimeSeriesResponse, UsagePoint
from cloister_api.schemas.container_responses import ContainerMetricsResponse, UtilizationPoint
from cloister_api.schemas.forms import ContainerUser
from cloister_api.services.api_keys import key_record as api_key_record
from cloister_api.services.containers.reader import measurement_record
from cloister_api.services.containers.validation import verdict
from cloister_api.services.resources.deployments import result_of
from cloister_api.usage.queries import by_key
from cloister_api.wire import encode
from cloister_crds.kinds import Domain, Enclave, Host, RegistryCredential, Secret, SSHKey
from cloister_crds.kinds.host import TEE
from cloister_crds.measurement import Publication
from cloister_crds.measurement.initdata import Initdata
from cloister_crds.names import RepositoryNames
from cloister_crds.problems import Problem, Severity
from tests.unit.api.records.test_container import ORGANIZATION, SETTINGS, held
from tests.unit.api.records.test_resources import DEPLOYMENT, HELD, META

GOLDEN = Path(__file__).with_name("wire_format.txt")
"""One line for each record: its name, a tab, its bytes."""
WEB = ContainerUser(id="u1", name="web", debug=False)
UPDATE = {
    "enclave": "e",
    "uid": "e1",
    "revision": "r",
    "tag": "v2",
    "status": "failed",
    "type": "blue_green",
    "message": "unhealthy: exit 1",
    "preview": "p.c.test",
}
FULL = held(
    {
        "name": "web-2",
        "customDomain": "www.example.test",
        "variables": [{"name": "B", "value": 'q"\n'}, {"name": "A", "value": "é\u2028"}],
        "secrets": ["S2", "S1"],
        "sshKeys": ["laptop"],
        "debug": True,
        "staging": True,
        "disableConfidential": True,
        "githubConnected": False,
    },
    {
        "phase": "ready",
        "sshPort": 2222,
        "host": {"name": "h1", "gpuType": "H100", "cpuType": ""},
        "currentTag": "v1",
        "resources": {"cpus": 4, "memoryMB": 16384, "gpus": 1},
        "update": UPDATE,
    },
)
VALUE_AT = {"valueUpdatedAt": "2026-11-22T05:00:00Z"}
SPEC = {"name": "API_KEY", "secretRef": {"name": "core"}}
DOMAIN = {
    "txtName": "_cloister.api.example.test",
    "txtValue": "cloister-verification=api.example.test:abc",
    "cnameTarget": "0123.dns.test",
}
KEY = ApiKey(
    id=7,
    index=b"i",
    organization="acme",
    organization_id="o1",
    name="build bot",
    created_by="ada",
    disabled=False,
    deleted_at=None,
    created_at=datetime(2026, 11, 22, 4, 0, 0, 250, UTC),
    expires_at=None,
    max_tokens=None,
    metadata={"team": "é", "n": 1.5},
    shown="tk_12345",
    input_tokens=3,
    output_tokens=4,
    requests=2,
    last_used_at=datetime(2026, 11, 22, 5, tzinfo=UTC),
)


def container(one: Any) -> Any:
    return container_record(one, ORGANIZATION, DEPLOYMENT, SETTINGS)


def secret(spec: dict[str, Any]) -> Any:
    body = {"metadata": {**META, "name": "s"}, "spec": spec, "status": VALUE_AT}
    return secret_record(Secret.read(body), [WEB])


def domain(status: dict[str, Any]) -> Any:
    body = {
        "metadata": {**META, "name": "d"},
        "spec": {"domain": "api.example.test"},
        "status": status,
    }
    return domain_record(Domain.read(body), [WEB, WEB.model_copy(update={"debug": True})])


def credential(status: dict[str, Any]) -> Any:
    spec = {"registry": "ghcr", "secretRef": {"name": "core", "key": ".dockerconfigjson"}}
    body = {"metadata": {**META, "name": "ghcr"}, "spec": spec, "status": status}
    return registry_record(RegistryCredential.read(body))


def host(gpu: dict[str, Any] | None) -> Any:
    spec = {"gpu": gpu} if gpu else {}
    return host_record(Host.read({"metadata": {"name": "h"}, "spec": spec}), default=True)


def measurement(initdata: Initdata | None) -> Any:
    spec = SimpleNamespace(
        repo="acme/web", tag="v1", commit="9f" * 20, config_file="service-config.yml"
    )
    enclave = cast("Enclave", SimpleNamespace(spec=spec))
    return measurement_record(
        enclave, Publication('{"a": [null], "b": 1.5}', initdata, {"agent.json": "{}"})
    )


INVOICE = {
    "id": "in_1",
    "customer": "cus_1",
    "created": 1_790_000_000,
    "status": "paid",
    "total": 1999,
    "amount_paid": 1999,
    "currency": "eur",
    "number": "A-1",
}
CHARGE = {
    "id": "ch_1",
    "customer": "cus_1",
    "created": 1_790_000_000,
    "status": "succeeded",
    "amount": 500,
    "currency": "jpy",
}
COUNTS = {"tokens": 3, "input_tokens": 1, "output_tokens": 2, "requests": 4}
PROBLEMS = (
    Problem("containers[0].image", "ImageNotFound", "no such image", line=3, column=7),
    Problem("spec.host", "Invalid", "no such host"),
    Problem("", "Deprecated", "old", severity=Severity.WARNING),
)
RECORDS: dict[str, Callable[[], Any]] = {
    "container": lambda: container(held()),
    "container with everything": lambda: container(FULL),
    "update": lambda: update_record(FULL.container),
    "no update": lambda: update_record(held().container),
    "host": lambda: host(None),
    "host with GPUs": lambda: host({"resource": "nvidia.com/gpu", "counts": [8, 1]}),
    "deployment": lambda: deployment_record(HELD, [held().container], RepositoryNames()),
    "secret": lambda: secret(SPEC),
    "secret of a repository": lambda: secret({**SPEC, "repo": "team/web"}),
    "ssh key": lambda: key_record(
        SSHKey.read(
            {
                "metadata": {**META, "name": "ada"},
                "spec": {"publicKey": "ssh-ed25519 AAAA ada"},
            }
        ),
        (),
    ),
    "domain": lambda: domain({}),
    "verified domain": lambda: domain(
        {
            "records": DOMAIN,
            "cnameConfigured": True,
            "verified": True,
            "verifiedAt": "2026-11-22T05:00:00.123456Z",
        }
    ),
    "no credentials": lambda: registry_record(None),
    "credentials": lambda: credential({**VALUE_AT, "username": "ada", "expired": True}),
    "credentials without a name": lambda: credential(VALUE_AT),
    "masked API key": lambda: api_key_record(KEY, None),
    "own API key": lambda: api_key_record(KEY, "tk_whole"),
    "verdict": lambda: verdict(PROBLEMS, None),
    "verdict with the file": lambda: verdict((), {"cpus": 2, "memory": 1.5, "é": None}),
    "measurement": lambda: measurement(None),
    "measurement with initdata": lambda: measurement(Initdata(TEE.SNP, b'version = "0.1.0"')),
    "invoice": lambda: invoice_record(Invoice.model_validate(INVOICE), 250),
    "open invoice": lambda: invoice_record(
        Invoice.model_validate({**INVOICE, "status": "open", "amount_paid": 0}), 0
    ),
    "charge": lambda: charge_record(Charge.model_validate(CHARGE)),
    "updated container": lambda: result_of(held(), "updating"),
    "usage": lambda: by_key({"bot": {"north": (1, 2, 3, 4_500_000), "south": (0, 0, 1, 0)}}),
    "no usage": lambda: by_key({}),
    "time series": lambda: TimeSeriesResponse(
        data_points=[
            UsagePoint(
                time="2026-11-22T04:00:00Z",
                **COUNTS,
                models={"north": ModelUsage(**COUNTS)},
            )
        ],
        interval="15m0s",
    ),
    "metrics": lambda: ContainerMetricsResponse(
        interval="5s",
        data_points=[
            UtilizationPoint(
                time="2026-11-22T04:00:00Z",
                cpu_util=None,
                cpu_mem_util=12.5,
                cpu_mem_total=8.0,
                gpu_util=71.5,
                gpu_mem_util=None,
                gpu_mem_total=None,
            )
        ],
    ),
}


def golden() -> dict[str, str]:
    lines = GOLDEN.read_text().removesuffix("\n").split("\n")
    return dict(line.split("\t", 1) for line in lines)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_encoded_bytes_of_a_record_stay_the_same(name: str) -> None:
    assert encode(RECORDS[name]()).decode() == golden()[name]

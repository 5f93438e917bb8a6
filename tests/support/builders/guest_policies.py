"""Plans of Enclaves in machines, their rules, and what Kata's runtime requests for them."""

import functools
from collections.abc import Callable
from typing import Any

from cloister_crds.config import EncryptedBodies, ModelSpec, Shim
from cloister_crds.measurement.initdata import pod_text, policy_text
from cloister_operator.enclave.guest_policy import pod_data
from cloister_operator.enclave.plan import EnclavePlan
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    WORKER,
    build_pod,
    config_of,
    host_of,
    plan_of,
)
from tests.support.rego_engines import ENGINES
from tests.support.stand_ins.kata_runtime import KataRuntime, Request

__all__ = [
    "CREATE",
    "PLANS",
    "REMOVE",
    "START",
    "boot",
    "lives",
    "plan",
    "policy_of",
    "refused",
    "runtime_of",
]

SNP = {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"}
IMAGE = {"env": ["HOME=/data", "PATH=/bin", "API_KEY=default"], "workingDir": "/app"}
CREATE, START, REMOVE = "CreateContainerRequest", "StartContainerRequest", "RemoveContainerRequest"
TINY = ModelSpec(
    name="tiny",
    repo="example/tiny",
    commit="0" * 40,
    mpk=f"{'ab' * 32}_4096_11111111-2222-3333-4444-555555555555",
    root_hash="ab" * 32,
    offset=4096,
    uuid="11111111-2222-3333-4444-555555555555",
)


def plan(**changes: Any) -> EnclavePlan:
    """Build a plan with a rich container, whose image has an environment and a directory."""
    image: dict[str, object] = {"container": "Worker_1", "image": WORKER.image, **IMAGE}
    return plan_of(WEB, WORKER, host=host_of(**SNP), images=(image,), **changes)


PLANS: dict[str, Callable[[], EnclavePlan]] = {
    "small": functools.partial(plan_of, WEB, host=host_of(**SNP)),
    "rich": plan,
    "certificate": functools.partial(plan, signedCertificate=True),
    "shells": functools.partial(
        plan, debug=True, sshKeys=[{"name": "me", "publicKey": "ssh-ed25519 AAAA me@home"}]
    ),
    "gpus": functools.partial(
        plan_of,
        config=config_of(WEB.model_copy(update={"gpus": "all"}), gpus=1),
        host=host_of(**SNP, gpu={"resource": "nvidia.com/pgpu", "counts": [1]}),
        summary={"cpus": 2, "memoryMB": 8192, "gpus": 1},
    ),
    "encrypted bodies": functools.partial(
        plan_of,
        config=config_of(
            WEB,
            shim=Shim(
                upstream_port=8080,
                paths=("/*",),
                upstream_container="web",
                ehbp=EncryptedBodies.OPTIONAL,
            ),
        ),
        host=host_of(**SNP),
    ),
    "models": functools.partial(
        plan_of,
        config=config_of(WEB, models=(TINY,)),
        host=host_of(**SNP, models={"directory": "/srv/models"}),
    ),
}


def policy_of(given: EnclavePlan) -> str:
    spec = build_pod(given, SETTINGS)["spec"]
    return policy_text(pod_text(pod_data(given, spec)))


def runtime_of(given: EnclavePlan, *, metadata: bool = False) -> KataRuntime:
    facts = {each.container.lower().replace("_", "-"): each for each in given.enclave.spec.images}
    return KataRuntime(
        build_pod(given, SETTINGS),
        image_env={name: list(each.env) for name, each in facts.items()},
        image_directory={name: each.working_dir for name, each in facts.items()},
        metadata=metadata,
    )


def refused(engine: str, given: EnclavePlan, requests: list[Request]) -> list[Request]:
    """Return the requests that are refused."""
    verdicts = ENGINES[engine](policy_of(given), requests)
    return [each for each, admitted in zip(requests, verdicts, strict=True) if not admitted]


def boot(given: EnclavePlan) -> tuple[KataRuntime, list[Request]]:
    runtime = runtime_of(given)
    return runtime, list(runtime.boot())


def lives(engine: str, given: EnclavePlan, after: list[Request]) -> list[bool]:
    """Judge what follows the start of an enclave."""
    _, requests = boot(given)
    verdicts = ENGINES[engine](policy_of(given), [*requests, *after])
    assert all(verdicts[: len(requests)])
    return verdicts[len(requests) :]

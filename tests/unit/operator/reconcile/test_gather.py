"""Which claims of host names are gathered for a decision about a Container."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from cloister_clients.kube.kinds import NAMESPACE as NAMESPACES
from cloister_clients.kube.kinds import KindRef
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerStatus, KeptRequest
from cloister_crds.kinds.meta import Resource
from cloister_crds.lifecycle.request import record
from cloister_crds.names import ORGANIZATION_LABEL
from cloister_operator.cache.projections import CLAIM, ENCLAVE, ORGANIZATION
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import observe
from tests.support.builders.process import process_context
from tests.support.builders.resources import (
    NAMESPACE,
    NOW,
    claim_of,
    container_of,
    enclave_of,
    organization_of,
    subspec,
)

OLD, NEW = "old.example.org", "new.example.org"
GENERATED = "web.acme.containers.example"
GENERATED_DEBUG = "web.debug.acme.containers.example"


def put(context: ProcessContext, kind: KindRef, resources: Iterable[Resource]) -> None:
    """Put objects into the cache."""
    for each in resources:
        body = each.wire()
        context.store.put(kind, {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}})


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[ProcessContext]:
    """Provide the parts of a process, with all names held by another container."""
    made = process_context(str(tmp_path))
    metadata = {"name": NAMESPACE, "uid": "ns", "resourceVersion": "1"}
    labels = {ORGANIZATION_LABEL: "acme"}
    made.store.put(NAMESPACES, {"metadata": {**metadata, "labels": labels}})
    put(made, ORGANIZATION, [organization_of()])
    names = (OLD, NEW, GENERATED, GENERATED_DEBUG)
    put(made, CLAIM, [claim_of(each, holder="other") for each in names])
    yield made
    await made.aclose()


def kept() -> Container:
    """Return a container whose failed update to another domain and to debug was stopped."""
    served = container_of(custom_domain=OLD)
    asked = subspec(served, tag="v1.1.0", custom_domain=NEW, debug=True)
    held = KeptRequest(
        request=record(served.spec), instead_of=record(asked.spec), update_ended=True
    )
    return asked.model_copy(update={"status": ContainerStatus(kept_request=held)})


def gathered(context: ProcessContext, container: Container) -> set[str]:
    return set(observe(context, container, NOW).claims)


def test_the_names_of_the_kept_request_are_those_that_count(context: ProcessContext) -> None:
    container = kept()
    assert gathered(context, container) == {OLD, GENERATED}
    changed = subspec(container, tag="v1.2.0")
    assert gathered(context, changed) == {NEW, GENERATED_DEBUG}


def test_the_names_that_an_enclave_serves_count_too(context: ProcessContext) -> None:
    container = container_of(tag="v1.1.0")
    put(context, ENCLAVE, [enclave_of(container_of(custom_domain=OLD), hostnames=(OLD, GENERATED))])
    assert gathered(context, container) == {OLD, GENERATED}

"""The reconciler of a Host: its capacity, and whether enclaves can run there."""

from collections.abc import Iterable
from datetime import timedelta

from cloister_clients.kube import KindRef, NotFound
from cloister_clients.kube.kinds import NODE
from cloister_crds.kinds import Host
from cloister_crds.kinds.host import HostCapacity
from cloister_crds.lifecycle.admission.keys import api_reachable_condition
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import HOST
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.network.addresses import ClusterNetwork
from cloister_operator.enclave.sidecars import isolates_containers
from cloister_operator.reconcile.results import DONE, Result, write_status_throttled
from cloister_operator.workqueue.triggers import Key

_RECHECK = timedelta(minutes=1)
"""No watch reports a name server or a RuntimeClass that is created later, nor the API's state."""
_RUNTIME_CLASS = KindRef("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)


async def reconcile_host(context: ProcessContext, key: Key) -> Result:
    """Report the capacity of a Host, and whether enclaves can run there.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    entry = context.store.get(HOST, "", key.name)
    if entry is None:
        return DONE
    host = context.models.read(Host, entry)
    if is_paused(host):
        return DONE
    nodes = sum(_fits(host, each.decode()) for each in context.store.entries(NODE))
    generation = host.metadata.generation
    # A missing RuntimeClass comes first: without it no Pod of the Host can be created.
    finding = await _missing_class(context, host)
    if finding is None:
        finding = _finding(host, nodes, await context.cluster_network.read())
    reach = api_reachable_condition(*await context.cluster_network.api())
    defaults = [
        each.name for each in context.store.entries(HOST) if each.decode()["spec"].get("default")
    ]
    status = host.status.model_copy(
        update={
            "observed_generation": generation,
            "capacity": HostCapacity(nodes=nodes),
            "conditions": merge(
                host.status.conditions,
                [finding, reach, *default_conditions(key.name, defaults)],
                generation=generation,
                now=context.now(),
            ),
        }
    )
    written = await write_status_throttled(context, key, HOST, host.status.wire(), status.wire())
    # Neither is watched, so that only another look shows when they are there.
    waits = finding.reason in {"NoResolver", "RuntimeClassMissing"}
    if waits or context.settings.api_address is not None:
        return Result(min(written.requeue_after or _RECHECK, _RECHECK), wrote=written.wrote)
    return written


def default_conditions(name: str, defaults: Iterable[str]) -> list[ConditionUpdate]:
    """Report which Host is the default where several say so, this one among them.

    Parameters
    ----------
    defaults
        Names of all Hosts that say so.
    """
    first, *others = sorted(defaults) or [name]
    if not others or name not in {first, *others}:
        return []
    message = (
        f"{', '.join((first, *others))} set spec.default; {first} counts, the first by name. "
        "Leave spec.default out of the others."
    )
    return [
        ConditionUpdate("Default", status=name == first, reason="SeveralDefaults", message=message)
    ]


async def _missing_class(context: ProcessContext, host: Host) -> ConditionUpdate | None:
    """Report a RuntimeClass that does not exist: the API server would refuse the Host's Pods."""
    name = host.spec.runtime_class_name
    if name is None:
        return None
    try:
        await context.client.get(_RUNTIME_CLASS, name)
    except NotFound:
        message = (
            f"There is no RuntimeClass {name}; install the runtime that brings it (kata-deploy for "
            "Kata), or correct spec.runtimeClassName."
        )
        return ConditionUpdate("Ready", status=False, reason="RuntimeClassMissing", message=message)
    return None


def _finding(host: Host, nodes: int, network: ClusterNetwork) -> ConditionUpdate:
    """Report whether enclaves can run on a Host.

    Without a node that fits they wait, which the condition reports; it does not refuse them, since
    a node may be added for them.
    """
    if isolates_containers(host) and not network.resolvers:
        message = (
            "No name server for enclaves is known: set enclaveNetwork.resolvers of the operator, "
            "or make the Service kube-dns in kube-system."
        )
        return ConditionUpdate("Ready", status=False, reason="NoResolver", message=message)
    if not nodes:
        message = "No node that is ready has the labels of nodeSelector; enclaves wait for one."
        return ConditionUpdate("Ready", status=True, reason="NoNode", message=message)
    return ConditionUpdate(
        "Ready", status=True, reason="NodesReady", message=f"{nodes} nodes are ready."
    )


def _fits(host: Host, node: dict[str, object]) -> bool:
    """Return whether a node is ready, schedulable and has the labels of a Host."""
    labels, status, spec = node["nodeLabels"], node["status"], node["spec"]
    assert isinstance(labels, dict)
    assert isinstance(status, dict)
    assert isinstance(spec, dict)
    ready = any(each["status"] == "True" for each in status["conditions"])
    selected = all(labels.get(each.name) == each.value for each in host.spec.node_selector)
    return ready and selected and not spec["unschedulable"]

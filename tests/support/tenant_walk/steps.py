"""Steps of a tenant, generated: requests with any metadata, through both doors.

A step names its targets by words of short lists, so that it means the same in every run; what
exists only at run time (identifiers, namespaces) is written as ``{victim.uid}`` and the like.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

__all__ = ["HOST_NAME", "NAMES", "Step", "steps"]

HOST_NAME = "api.customer.test"
"""Custom domain that the victim holds."""
NAMES = ("a", "b", "c", "web", "shop")
"""Names of objects; the last two are those of the victim's Containers."""
KINDS = ("containers",) * 6 + (
    *("deployments", "secrets", "sshkeys", "registrycredentials", "domains", "core-secrets"),
    *("enclaves", "hostnameclaims", "organizations", "hosts", "pods", "services"),
)
"""Names in paths; Containers are what most can be tried with."""
_OURS = (
    *("id", "paused", "adopted-at", "create-request", "replaces-uid", "replaces", "request"),
    *("requested-at", "asked-resources", "last-change", "value-updated-at", "organization"),
    *("container", "enclave", "value-of", "metering", "trace", "anything"),
)
_KEYS = st.sampled_from(
    [f"cloister.dev/{word}" for word in _OURS]
    + ["sub.cloister.dev/x", "evil.example/x", "argocd.argoproj.io/instance", "kubernetes.io/x"]
)
_WORDS = st.sampled_from(
    [
        *("{victim.uid}", "{victim.enclave}", "{victim.slug}", "{victim.namespace}", "{own.uid}"),
        *("web", "true", "", "x" * 63, "2099-01-01T00:00:00Z", "{victim.claim}"),
    ]
)
_FINALIZERS = st.sampled_from(
    ["evil.example/keep", "cloister.dev/metering", "foregroundDeletion", "orphan", "kubernetes"]
)
_OWNERS = st.builds(
    lambda api, kind, name, uid, controls: {
        "apiVersion": api,
        "kind": kind,
        "name": name,
        "uid": uid,
        **controls,
    },
    st.sampled_from(["cloister.dev/v1alpha1", "v1"]),
    st.sampled_from(["Container", "Enclave", "Organization", "Host", "Secret", "Pod"]),
    st.sampled_from(NAMES),
    st.sampled_from(["{victim.uid}", "{victim.enclave-uid}", "{own.uid}"]),
    st.sampled_from(
        [{}, {"controller": True}, {"blockOwnerDeletion": True, "controller": True}],
    ),
)
_METADATA = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.dictionaries(_KEYS, _WORDS, max_size=2),
        "labels": st.dictionaries(_KEYS, _WORDS, max_size=2),
        "finalizers": st.lists(_FINALIZERS, max_size=2, unique=True),
        "ownerReferences": st.lists(_OWNERS, max_size=2),
    },
)
_NOTHING: st.SearchStrategy[dict[str, Any]] = st.just({})
_NAME = st.sampled_from(NAMES)
_PLACES = ("own",) * 12 + ("victim", "victim", "system", "kube-system")
_CONTAINER = st.fixed_dictionaries(
    {"repo": st.just("acme/web"), "tag": st.sampled_from(["v1", "v1", "v2", "v404"])},
    optional={
        "state": st.sampled_from(["Running", "Stopped"]),
        "customDomain": st.sampled_from([HOST_NAME, "evil.customer.test", "web.{victim.slug}.x"]),
        "replaces": _NAME,
        "staging": st.booleans(),
        "debug": st.booleans(),
        "promote": st.sampled_from(["0" * 10, "{victim.enclave}"]),
        "relaunch": st.sampled_from(["1", "2", "3"]),
        "name": _NAME,
        "host": st.sampled_from(["{own.host}", "{victim.host}"]),
        "autoUpdate": st.booleans(),
    },
)
_SPECS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "containers": _CONTAINER,
    "deployments": st.builds(lambda on: {"repo": "acme/web", "defaultStaging": on}, st.booleans()),
    "secrets": st.builds(lambda ref: {"name": "KEY", "secretRef": {"name": ref}}, _NAME),
    "sshkeys": st.just({"publicKey": "ssh-ed25519 AAAA me"}),
    "registrycredentials": st.builds(
        lambda ref: {"registry": "ghcr", "secretRef": {"name": ref}}, _NAME
    ),
    "domains": st.builds(lambda host: {"domain": host}, st.sampled_from([HOST_NAME, "x.test"])),
    "hostnameclaims": st.just({"holder": {"namespace": "{own.namespace}", "name": "a"}}),
    "organizations": st.just({"namespace": "{victim.namespace}"}),
    "hosts": st.just({"tee": "None", "networkIsolation": "Container"}),
    "enclaves": st.just({"container": {"name": "web", "uid": "{victim.uid}"}}),
    "pods": st.just({"containers": [{"name": "a", "image": "registry.invalid/a:1"}]}),
    "services": st.just({"ports": [{"port": 80}]}),
}
_STATUS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"phase": "ready"}, {"id": "{victim.uid}"}, {"verified": True}, {"activeEnclave": "web"}]
)


@dataclass(frozen=True, slots=True)
class Step:
    """One request."""

    verb: str
    """create, patch, status, delete, deletecollection, read, or rest."""
    plural: str
    name: str
    namespace: str
    """own, victim, system or kube-system."""
    metadata: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    propagation: str = "Background"
    call: tuple[str, str] = ("GET", "")
    """Method and path of a call of the Admin API."""


@st.composite
def _step(draw: st.DrawFn, verb: str) -> Step:
    """Return a request to the API server."""
    plural = draw(st.sampled_from(KINDS))
    wanted = _STATUS if verb == "status" else _SPECS.get(plural, _NOTHING)
    spec: dict[str, Any] = draw(wanted)
    return Step(
        verb=verb,
        plural=plural,
        name=draw(_NAME),
        namespace=draw(st.sampled_from(_PLACES)),
        metadata=draw(st.one_of(st.just({}), st.just({}), _METADATA)),
        spec=spec,
        propagation=draw(st.sampled_from(["Background", "Foreground", "Orphan"])),
    )


_PATHS = (
    ("GET", "/api/containers/{victim.uid}"),
    ("GET", "/api/containers/{victim.uid}/metrics?time=1h"),
    ("GET", "/api/containers"),
    ("POST", "/api/containers/{victim.uid}/stop"),
    ("POST", "/api/containers/{victim.uid}/relaunch"),
    ("DELETE", "/api/containers/{victim.uid}"),
    ("POST", "/api/containers"),
    ("POST", "/api/containers"),
)
_REST = st.builds(
    lambda call, name, replaced: Step(
        verb="rest",
        plural="",
        name=name,
        namespace="own",
        call=call,
        spec={"name": name, "repo": "acme/web", "tag": "v1", **replaced},
    ),
    st.sampled_from(_PATHS),
    _NAME,
    st.sampled_from(
        [{}, {"replace_container_id": "{victim.uid}"}, {"custom_domain": HOST_NAME}],
    ),
)


def steps() -> st.SearchStrategy[Step]:
    """Return the strategy of one step."""
    verbs = ("create", "create", "create", "patch", "patch", "status", "delete", "delete", "read")
    return st.one_of(*(_step(verb) for verb in (*verbs, "deletecollection")), _REST)

"""Who uses a secret, a key or a domain: what a Container requests, and what is kept instead."""

from typing import Any

import pytest

from cloister_crds.kinds import Container, Secret
from cloister_crds.lifecycle.admission.keys import named_by
from cloister_crds.lifecycle.admission.secrets import bound_by
from cloister_crds.lifecycle.names.domains import used_by
from cloister_crds.names import RepositoryNames

USING = {
    "secrets": ["API_KEY"],
    "debug": True,
    "sshKeys": ["laptop"],
    "customDomain": "www.example.com",
}
SECRET = Secret.read(
    {
        "metadata": {"name": "s"},
        "spec": {"name": "API_KEY", "secretRef": {"name": "values", "key": "api"}},
    }
)


def container(spec: dict[str, Any], kept: dict[str, Any] | None = None) -> Container:
    """Return a Container, with the request that is kept instead of spec; None = nothing is."""
    release = {"repo": "acme/web", "tag": "v1"}
    status: dict[str, Any] = {"secrets": []}
    if kept is not None:
        status["keptRequest"] = {
            "request": {**release, **kept},
            "insteadOf": {**release, **spec},
        }
    meta = {"name": "web", "namespace": "org-acme"}
    return Container.read({"metadata": meta, "spec": {**release, **spec}, "status": status})


def test_what_serves_is_used_while_an_update_without_it_waits() -> None:
    one = container({})
    served = {"secrets": ["API_KEY"], "sshKeys": ["laptop"]}
    status = {"activeEnclave": "web-a-1", "secrets": [], "servedBindings": served}
    found = Container.read({**one.wire(), "status": status})
    assert bound_by(SECRET, [found], RepositoryNames()) == (found,)
    assert named_by("laptop", [found]) == (found,)
    assert named_by("desktop", [found]) == ()


@pytest.mark.parametrize(
    ("found", "uses"),
    [
        (container(USING), True),
        (container({}, USING), True),
        (container(USING, {}), True),
        (container({}, {}), False),
        (container({}), False),
    ],
    ids=["requested", "kept", "requested, and something else is kept", "neither", "nothing kept"],
)
def test_what_is_kept_is_used_too(found: Container, *, uses: bool) -> None:
    users = (found,) if uses else ()
    assert bound_by(SECRET, [found], RepositoryNames()) == users
    assert named_by("laptop", [found]) == users
    assert used_by("www.example.com", [found]) == users

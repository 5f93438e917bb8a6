"""Parts of requests that several verbs have alike."""

from cloister_clients.kube.events import Object
from cloister_clients.kube.kinds import KindRef

__all__ = ["complete", "selectors"]


def selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    """Return the query parameters of the selectors that are given."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in query.items() if value}


def complete(ref: KindRef, body: Object) -> Object:
    """Return the body with apiVersion and kind."""
    return {"apiVersion": ref.api_version, "kind": ref.kind, **body}

"""Tokens of Pods as they describe themselves, and as the API server confirms them.

A token is a JSON Web Token. What it says is believed only after a TokenReview (Kubernetes,
"Managing Service Accounts"); before, it decides whether it is worth one.
"""

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cloister_crds.tokens import ACCOUNT, token_audience

__all__ = ["PodIdentity", "PodToken", "read_pod_token", "reviewed_identity"]

MOST_CHARACTERS = 8_192
"""Length of the longest token that is read; those of kubelets have some 1,300 characters."""
PARTS = 3
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The Pod that a token is of."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""


@dataclass(frozen=True, slots=True)
class PodToken:
    """What a token says; nobody has confirmed it."""

    pod: PodIdentity
    """Pod that it is bound to."""
    audiences: tuple[str, ...]
    """Audiences that it is for."""
    expires_at: float
    """When it expires, in seconds since 1970."""

    def is_for(self, enclave_uid: str) -> bool:
        """Return whether it is for requests of an Enclave."""
        return token_audience(enclave_uid) in self.audiences


class _BoundPod(msgspec.Struct):
    name: str
    uid: str


class _Binding(msgspec.Struct):
    namespace: str
    pod: _BoundPod


class _Claims(msgspec.Struct):
    aud: list[str] | str
    exp: float
    binding: _Binding = msgspec.field(name="kubernetes.io")


def read_pod_token(token: str) -> PodToken | None:
    """Read what a token says of itself; None = it is not the token of a Pod."""
    parts = token.split(".") if len(token) <= MOST_CHARACTERS else []
    if len(parts) != PARTS or not all(parts):
        return None
    try:
        payload = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return None
    bound = claims.binding
    pod = PodIdentity(bound.namespace, bound.pod.name, bound.pod.uid)
    audiences = (claims.aud,) if isinstance(claims.aud, str) else tuple(claims.aud)
    return PodToken(pod, audiences, claims.exp)


def reviewed_identity(status: Mapping[str, Any], audience: str) -> PodIdentity | None:
    """Return the Pod that a TokenReview confirms; None = it refuses the token.

    Parameters
    ----------
    status
        ``status`` of the TokenReview.
    audience
        The audience that was asked for. A server that ignores audiences names none.
    """
    if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    words = str(user.get("username", "")).split(":")
    if words[:2] != ["system", "serviceaccount"] or words[3:] != [ACCOUNT]:
        return None
    extra = user.get("extra") or {}
    names, uids = list(extra.get(POD_NAME) or ()), list(extra.get(POD_UID) or ())
    if len(names) != 1 or len(uids) != 1:
        return None
    return PodIdentity(words[2], names[0], uids[0])

"""The Kubernetes client of both programs: configuration, requests, watches, reflectors.

Objects travel as plain dicts; what they mean is read by `cloister_crds.kinds`.
"""

from cloister_clients.kube.client import KubeClient, ListPage
from cloister_clients.kube.config import ConfigError, KubeConfig
from cloister_clients.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from cloister_clients.kube.kinds import KindRef, Object, WatchEvent, WatchEventType
from cloister_clients.kube.reflector import ReflectedObject, Reflector

__all__ = [
    "AlreadyExists",
    "ConfigError",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "KindRef",
    "KubeClient",
    "KubeConfig",
    "KubeError",
    "ListPage",
    "NotFound",
    "Object",
    "ReflectedObject",
    "Reflector",
    "Unauthorized",
    "Unavailable",
    "WatchEvent",
    "WatchEventType",
]

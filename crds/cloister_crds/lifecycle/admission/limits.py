"""How many Containers of an organization count, and how large an enclave's record may be."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import Container, DesiredState
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.kinds.organization import Billing, Organization
from cloister_crds.lifecycle.metering import FINALIZER
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.replacement import successors
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.problems import Problem

__all__ = [
    "MAX_ENCLAVE_BYTES",
    "ImageSize",
    "Place",
    "PlaceOrder",
    "billing_of",
    "counted",
    "image_size_problems",
    "may_have_pod",
    "place_of",
    "rank",
    "running_places",
    "size_problems",
]

MAX_ENCLAVE_BYTES = 1_048_576
"""Most bytes of a ConfigMap (Kubernetes, "ConfigMaps")."""
_FILE_FACTOR = 3
"""The file as it is, and its words in documents with their quotes and indents."""
_MACHINE_FACTOR = 4
"""Bytes of a machine's rules for each byte of variables and of what images say."""
_PATH_FACTOR = 10
"""Bytes of an expression for each byte of a path, in either spelling."""
_KEYED_FACTOR = 24
"""Bytes of an expression for each byte of a path that needs a key: also in either case."""
_PER_CONTAINER = 1_200
"""Bytes of documents for each container in addition to its words."""
_BASE = 16_384
"""Bytes of documents for each enclave."""
_MACHINE_PER_CONTAINER = 2_500
"""Bytes of rules for each container of a machine in addition to its words."""
_MACHINE_BASE = 65_536
"""Bytes of rules for each machine."""


def size_problems(
    config: ServiceConfig, file_bytes: int, image_sizes: Mapping[str, int], *, machine: bool
) -> Iterator[Problem]:
    """Yield a problem when an enclave cannot be recorded, with its largest part as the field.

    Parameters
    ----------
    image_sizes
        Bytes of what images say about their process, by their reference in the file; those that
        are not known yet are left out.
    machine
        Whether it is a machine of its own, whose rules know its containers.
    """
    images = sum(image_sizes.get(each.image, 0) for each in config.containers)
    again = _MACHINE_FACTOR if machine else 0
    parts = {
        "the file": ("", _FILE_FACTOR * file_bytes + again * _environment(config)),
        "what its images say (entrypoint, command, environment)": (
            "containers",
            (1 + again) * images,
        ),
        "shim.paths": ("shim.paths", _PATH_FACTOR * _length(config.shim.paths)),
        "shim.authenticated-endpoints": (
            "shim.authenticated-endpoints",
            _KEYED_FACTOR * _length(config.shim.keyed_endpoints),
        ),
    }
    total = sum(size for _, size in parts.values())
    total += _BASE + _PER_CONTAINER * len(config.containers)
    if machine:
        total += _MACHINE_BASE + _MACHINE_PER_CONTAINER * len(config.containers)
    if total <= MAX_ENCLAVE_BYTES:
        return
    name, (field, size) = max(parts.items(), key=lambda part: part[1][1])
    yield Problem(
        field,
        "EnclaveTooLarge",
        f"The enclave would be recorded in {total} bytes, and at most {MAX_ENCLAVE_BYTES} can be; "
        f"{name} would take {size} of them. Make that smaller and tag a new release.",
    )


def _length(paths: tuple[str, ...]) -> int:
    """Return the bytes of paths."""
    return sum(len(each.encode()) for each in paths)


def _environment(config: ServiceConfig) -> int:
    """Return the bytes of the variables of a file."""
    entries = (entry for container in config.containers for entry in container.env)
    return sum(len(f"{entry.name}={entry.value or ''}".encode()) for entry in entries)


class ImageSize(NamedTuple):
    """How large an image is."""

    described: int
    """Bytes of what it says about its process."""
    pulled: int
    """Bytes of its configuration and layers as they are pulled, which is mostly compressed."""


def image_size_problems(
    config: ServiceConfig, sizes: Mapping[str, ImageSize], most: int
) -> Iterator[Problem]:
    """Yield a problem for each image that is too large, or one for all of them together.

    Parameters
    ----------
    sizes
        Sizes by reference in the file; those that are not known yet are left out.
    most
        Most bytes that the images may have together; one that is named twice counts once, and
        layers that images share count for each.
    """
    remedy = "Build smaller images and tag a new release, or ask the administrator."
    known = {
        each.image: sizes[each.image].pulled for each in config.containers if each.image in sizes
    }
    large = False
    for index, container in enumerate(config.containers):
        size = known.get(container.image, 0)
        if size > most:
            large = True
            field = f"containers[{index}].image"
            yield Problem(
                field,
                "ImageTooLarge",
                f"{field} (container {container.name}) has {size} bytes to pull; the images of a "
                f"file may have at most {most} together (registry.maxImageBytes). {remedy}",
            )
    total = sum(known.values())
    if not large and total > most:
        yield Problem(
            "containers",
            "ImageTooLarge",
            f"The images of the file have {total} bytes to pull; they may have at most {most} "
            f"together (registry.maxImageBytes). {remedy}",
        )


Place = tuple[datetime, str]
"""A Container's place in the order: when it was created, and its uid."""

_LAST = datetime.max.replace(tzinfo=UTC)
"""Creation time of what has none from the server yet."""
_OVER = {EnclavePhase.FAILED, EnclavePhase.ENDED}
_WAITS_FOR_A_PLACE = "LimitReached"
"""Reason of a successor that waits for the very place that it will receive."""


class PlaceOrder:
    """Places of the Containers of a namespace in order, kept as they come and go.

    So that the rank of each of thousands does not read all of them.
    """

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._places = sorted(places)
        self._uids = {uid for _, uid in self._places}

    def __bool__(self) -> bool:
        return bool(self._places)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, place: Place) -> None:
        """Add the place of a Container that has none yet."""
        insort(self._places, place)
        self._uids.add(place[1])

    def remove(self, place: Place) -> None:
        """Remove a place that was added."""
        del self._places[bisect_left(self._places, place)]
        self._uids.discard(place[1])

    def before(self, place: Place) -> int:
        """Return how many places are before one, which need not be among them."""
        return bisect_left(self._places, place)


def counted(containers: Iterable[Container], running: Mapping[str, Place]) -> tuple[Place, ...]:
    """Return the places of what counts in an organization, in order. Stopped Containers count.

    Parameters
    ----------
    containers
        All Containers of the organization's namespace, deleting ones included.
    running
        Places by uid of the Containers of which an Enclave has a Pod, those that are gone included
        (`running_places`).
    """
    everything = tuple(containers)
    exempt = _exempt(everything, running)
    places = {uid: place for uid, place in running.items() if uid not in exempt}
    living = set()
    for each in everything:
        uid = each.metadata.uid
        if each.metadata.deletion_timestamp is None:
            living.add(uid)
        if uid in places or (uid not in exempt and uid in living):
            places[uid] = _place(each)
    return tuple(sorted(places.values(), key=lambda each: _order(each, lives=each[1] in living)))


def rank(
    container: Container,
    order: PlaceOrder,
    related: Iterable[Container],
    running: Mapping[str, Place],
) -> int | None:
    """Return the place of a Container among those that count.

    Parameters
    ----------
    order
        Places of all Containers of the organization's namespace that are not being deleted.
    related
        Those of the namespace that are connected by ``spec.replaces``; more do no harm.
    running
        As for `counted`; of those that are neither related, being deleted nor gone none is needed.

    Returns
    -------
    int | None
        From 0; it is within the limit while this is smaller than ``spec.limits.containers`` of the
        Organization. None when it does not count.
    """
    related = tuple(related)
    exempt, uid = _exempt(related, running), container.metadata.uid
    ended = container.metadata.deletion_timestamp is not None and uid not in running
    if uid in exempt or ended:
        return None
    own, lives = _place(container), container.metadata.deletion_timestamp is None
    # As `_order` has it: in one second, what is being deleted or gone was first.
    bound = own if lives else (own[0], "")
    present = order.before(bound) - sum(
        each.metadata.uid in exempt and each.metadata.uid in order and _place(each) < bound
        for each in related
    )
    left = (place for each, place in running.items() if each not in order and each not in exempt)
    return present + sum(place[0] <= own[0] if lives else place < own for place in left)


def _order(place: Place, *, lives: bool) -> tuple[datetime, bool, str]:
    """Return the sort key of a place: in one second, what is being deleted or gone was first."""
    return (place[0], lives, place[1])


def running_places(places: Iterable[Place]) -> dict[str, Place]:
    """Return the places by uid of the Containers that places of Enclaves with a Pod are of.

    The Container itself may be gone: the first of its Enclaves has its place.
    """
    return {place[1]: place for place in sorted(places, reverse=True)}


def may_have_pod(enclave: Enclave) -> bool:
    """Return whether an Enclave may have a Pod, as far as the Enclave itself tells.

    One that is being deleted has none once only the finalizer of metering keeps it and it no longer
    serves: Kubernetes keeps it for its Pod otherwise.
    """
    meta, status = enclave.metadata, enclave.status
    if status.phase in _OVER:
        return False
    if meta.deletion_timestamp is None or set(meta.finalizers) - {FINALIZER}:
        return True
    return status.promoted_at is not None and status.demoted_at is None


def _exempt(containers: tuple[Container, ...], running: Mapping[str, Place]) -> frozenset[str]:
    """Return the uids of those that do not count because another one replaces them.

    One that has ended does not; one that still runs does not while it is handed over.
    """
    following = successors(containers)
    return frozenset(
        uid
        for uid, new in following.items()
        if uid not in running or (new.metadata.uid not in following and _takes_over(new))
    )


def _takes_over(successor: Container) -> bool:
    """Return whether a successor starts or has taken over, rather than waits for somebody."""
    if successor.spec.state is not DesiredState.RUNNING:
        return False
    if is_paused(successor):
        return False
    stalled = condition(successor.status.conditions, "Stalled")
    if stalled is None or stalled.status is not ConditionStatus.TRUE:
        return True
    return stalled.reason == _WAITS_FOR_A_PLACE


def _place(container: Container) -> Place:
    return place_of(container.metadata.creation_timestamp, container.metadata.uid)


def place_of(created: datetime | None, uid: str) -> Place:
    """Return the place of an object.

    Parameters
    ----------
    created
        When it was created; None if the server has not set it yet.
    """
    return (created or _LAST, uid)


def billing_of(organization: Organization) -> Billing:
    """Return what an organization pays for.

    With a customerID, what the payment processor reported for this customer wins; what it reported
    for another one, before the customerID was changed, does not.
    """
    reported, customer = organization.status.billing, organization.spec.billing.customer_id
    if customer is not None and reported is not None and reported.customer_id == customer:
        return reported
    return organization.spec.billing

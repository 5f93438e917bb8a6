"""Validation: whether an organization may run a request, for the facade and for the operator.

It gets facts and does no I/O. The facade gathers everything and shows all problems together; the
operator validates in stages (`spec_problems` before a release is fetched, `file_problems` after),
so that what cannot run costs no lookup. Problems of the file itself are those of the parser.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from re import fullmatch

from cloister_crds.config.model import ServiceConfig
from cloister_crds.installation import MAX_IMAGE_BYTES
from cloister_crds.kinds.container import NAME_PATTERN, ContainerSpec
from cloister_crds.kinds.domain import Domain
from cloister_crds.kinds.host import Host, NetworkIsolation, TEEUnit
from cloister_crds.kinds.organization import Organization
from cloister_crds.kinds.secret import Secret
from cloister_crds.kinds.sshkey import SSHKey
from cloister_crds.lifecycle.admission.host_requirements import (
    gpu_count,
    host_problems,
    staging_problems,
)
from cloister_crds.lifecycle.admission.host_selection import (
    maps_users,
    not_ready_condition,
    pick_host,
    profile,
    tee_problems,
)
from cloister_crds.lifecycle.admission.keys import key_error, keys_without_api
from cloister_crds.lifecycle.admission.limits import (
    ImageSize,
    billing_of,
    image_size_problems,
    size_problems,
)
from cloister_crds.lifecycle.admission.secrets import binding_problems
from cloister_crds.lifecycle.names.domains import find_domain
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.observed import Failed, ReleaseFacts
from cloister_crds.names import RepositoryNames
from cloister_crds.problems import Problem, Severity

__all__ = [
    "NETWORKS_SINCE",
    "RequestFacts",
    "errors_of",
    "file_problems",
    "spec_problems",
    "validate_for_organization",
]

NETWORKS_SINCE = (0, 10, 0)
"""First cvm-version in which each container has a network namespace of its own."""
NAME_LIMIT = 64
"""Longest name of a container (spec 12.4)."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request and all that is known about it."""

    name: str
    """Name of the container (spec.name, else metadata.name)."""
    spec: ContainerSpec
    """What is requested."""
    organization: Organization | None
    """The owner of the namespace; None if no Organization owns it."""
    hosts: tuple[Host, ...] = ()
    """All Hosts."""
    secrets: tuple[Secret, ...] = ()
    """All Secrets (csec) of the namespace."""
    ssh_keys: tuple[SSHKey, ...] = ()
    """All SSHKeys of the namespace."""
    domains: tuple[Domain, ...] = ()
    """All Domains of the namespace."""
    repositories: RepositoryNames = field(default_factory=RepositoryNames)
    """How names of repositories are compared."""
    binds_are_final: bool = True
    """Whether spec.secrets is all that will be bound; False if a validate that says nothing of it,
    so that an organization secret which is not bound is a warning."""
    rank: int | None = None
    """Place in the order of the limit (`limits.rank`); None if it is not counted, as for `validate`
    of a relaunch or replace."""
    file_limit: int = 256 * 1024
    """Largest deployable file in bytes."""
    api_known: bool = True
    """False when the caller has the operator's settings and apiAddress is not set; others read the
    Host."""
    release: ReleaseFacts | None = None
    """The release; None if not known yet, and the file is not checked."""
    images: Mapping[str, Failed] = field(default_factory=dict)
    """What is wrong with images, by their reference in the file; the rest is right or unknown."""
    image_sizes: Mapping[str, ImageSize] = field(default_factory=dict)
    """Sizes of images by their reference, as far as they are known."""
    image_limit: int = MAX_IMAGE_BYTES
    """Most bytes of all images of a file as they are pulled."""

    @property
    def config(self) -> ServiceConfig | None:
        """The file when it is known and has no errors."""
        return self.release.config if self.release is not None else None

    @property
    def host(self) -> Host | None:
        """The Host that it would run on."""
        return pick_host(self.spec.host, self.hosts)


Check = Callable[[RequestFacts], Iterator[Problem]]
"""One rule; it yields the problems that it finds."""


_LAST_USER = 65535
"""Highest user id in a Pod with a user namespace (Kubernetes, "User Namespaces")."""


def validate_for_organization(facts: RequestFacts) -> tuple[Problem, ...]:
    """Return everything that keeps an organization from running a request.

    Returns
    -------
    tuple[Problem, ...]
        Errors and warnings in the order of the rules; codes are words of the reasons table or those
        of the configuration file.
    """
    return spec_problems(facts) + file_problems(facts)


def spec_problems(facts: RequestFacts) -> tuple[Problem, ...]:
    """Return what is wrong before the release is looked up."""
    return _run(SPEC_CHECKS, facts)


def file_problems(facts: RequestFacts) -> tuple[Problem, ...]:
    """Return what is wrong with the release, its file and its images; empty without a release."""
    return _run(FILE_CHECKS, facts) if facts.release is not None else ()


def errors_of(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the problems that forbid a deployment."""
    return tuple(each for each in problems if each.severity is Severity.ERROR)


def _run(checks: tuple[Check, ...], facts: RequestFacts) -> tuple[Problem, ...]:
    return tuple(problem for check in checks for problem in check(facts))


def _has_an_organization(facts: RequestFacts) -> Iterator[Problem]:
    if facts.organization is None:
        yield Problem(
            "metadata.namespace",
            "OrganizationNotFound",
            "No Organization owns this namespace; create the Container in the namespace of one.",
        )
    elif facts.organization.metadata.deletion_timestamp is not None:
        slug = facts.organization.metadata.name
        text = f"Organization {slug} is being deleted; nothing new starts in it."
        yield Problem("metadata.namespace", "OrganizationDeleting", text)


def _has_a_valid_name(facts: RequestFacts) -> Iterator[Problem]:
    if len(facts.name) > NAME_LIMIT or not fullmatch(NAME_PATTERN, facts.name):
        yield Problem(
            "spec.name",
            "InvalidName",
            f"{facts.name!r} cannot be part of a host name; set spec.name to at most {NAME_LIMIT} "
            "lowercase letters, digits and hyphens, with no hyphen at the ends.",
        )


def _has_a_subscription(facts: RequestFacts) -> Iterator[Problem]:
    organization = facts.organization
    if organization is not None and not billing_of(organization).container_subscription:
        yield Problem(
            "",
            "SubscriptionRequired",
            f"Organization {organization.metadata.name} has no active container subscription; "
            "subscribe to create, start or relaunch containers. What serves continues.",
        )


def _is_within_the_limit(facts: RequestFacts) -> Iterator[Problem]:
    organization = facts.organization
    if organization is None or facts.rank is None:
        return
    most = organization.spec.limits.containers
    if facts.rank >= most:
        yield Problem(
            "",
            "LimitReached",
            f"quota reached: organization {organization.metadata.name} may have {most} containers "
            "(stopped ones count); delete one or ask the administrator for more.",
        )


def _is_entitled(facts: RequestFacts) -> Iterator[Problem]:
    organization, spec = facts.organization, facts.spec
    if organization is None:
        return
    granted = organization.spec.entitlements
    requested = (
        ("host", spec.host is not None and not granted.host_selection, "hostSelection"),
        ("gpus", bool(spec.gpus) and not granted.gpu, "gpu"),
        (
            "customDomain",
            spec.custom_domain is not None and not granted.domain_suffixes,
            "domainSuffixes",
        ),
    )
    for name, missing, entitlement in requested:
        if missing:
            yield Problem(
                f"spec.{name}",
                "EntitlementRequired",
                f"spec.{name} needs the entitlement {entitlement}, which organization "
                f"{organization.metadata.name} does not have; leave it out or ask the "
                "administrator.",
            )


def _has_a_host(facts: RequestFacts) -> Iterator[Problem]:
    named = facts.spec.host
    if facts.host is not None:
        return
    if named is None:
        yield Problem(
            "spec.host",
            "NoDefaultHost",
            "No Host is marked as the default one; set spec.host or ask the administrator.",
        )
    else:
        names = ", ".join(sorted(each.metadata.name for each in facts.hosts)) or "none"
        yield Problem(
            "spec.host",
            "HostNotFound",
            f"There is no Host named {named!r}; set spec.host to one of: {names}.",
        )


def _has_a_ready_host(facts: RequestFacts) -> Iterator[Problem]:
    host = facts.host
    if host is None:
        return
    found = not_ready_condition(host)
    if found is not None:
        yield Problem(
            "spec.host",
            "HostNotReady",
            f"Host {host.metadata.name} is not ready: {found.message or found.reason}",
        )


def _may_disable_the_tee(facts: RequestFacts) -> Iterator[Problem]:
    if facts.host is not None:
        yield from tee_problems(facts.spec, facts.host)


def _binds_secrets_that_exist(facts: RequestFacts) -> Iterator[Problem]:
    known = {each.spec.name for each in facts.secrets if each.spec.repo is None}
    for index, name in enumerate(facts.spec.secrets):
        if name not in known:
            yield Problem(
                f"spec.secrets[{index}]",
                "SecretNotFound",
                f"The organization has no secret named {name!r}; create it or remove the name from "
                "spec.secrets.",
            )


def _has_a_verified_domain(facts: RequestFacts) -> Iterator[Problem]:
    host = facts.spec.custom_domain
    if host is None:
        return
    domain = find_domain(host, facts.domains)
    if domain is None:
        yield Problem(
            "spec.customDomain",
            "DomainNotFound",
            f"The organization has no domain {host}; add the domain, create its TXT and CNAME "
            "records and verify it, or leave customDomain out.",
        )
    elif not domain.status.verified:
        ready = condition(domain.status.conditions, "Ready")
        detail = ready.message if ready is not None else "It was not checked yet."
        yield Problem(
            "spec.customDomain",
            "DomainNotVerified",
            f"Domain {host} is not verified. {detail}",
        )


def _names_keys_that_can_log_in(facts: RequestFacts) -> Iterator[Problem]:
    keys = {each.metadata.name: each.spec.public_key for each in facts.ssh_keys}
    for index, name in enumerate(facts.spec.ssh_keys):
        if name not in keys:
            yield Problem(
                f"spec.sshKeys[{index}]",
                "SSHKeyNotFound",
                f"The organization has no SSHKey named {name!r}; create it or remove the name "
                "from spec.sshKeys.",
            )
        elif (error := key_error(keys[name])) is not None:
            yield Problem(
                f"spec.sshKeys[{index}]",
                "SSHKeyInvalid",
                f"SSHKey {name} cannot be used: its key {error}",
            )


def _has_a_valid_file(facts: RequestFacts) -> Iterator[Problem]:
    release = facts.release
    if release is None:
        return
    if len(release.raw) > facts.file_limit:
        yield Problem(
            "",
            "ConfigFileTooLarge",
            f"{release.file_name} at {release.tag} has {len(release.raw)} bytes; at most "
            f"{facts.file_limit} can be deployed. Make it smaller and tag a new release.",
        )
    yield from release.problems


def _stays_within_resources(facts: RequestFacts) -> Iterator[Problem]:
    config, organization = facts.config, facts.organization
    if config is None or organization is None:
        return
    limits = organization.spec.limits
    gpus = gpu_count(config, facts.spec.gpus)
    requested = (
        ("cpus", config.cpus, limits.cpus),
        ("memory", config.memory, limits.memory),
        ("gpus", gpus, (0, *limits.gpus)),
    )
    for name, value, allowed in requested:
        if value not in allowed:
            values = ", ".join(str(each) for each in sorted(allowed))
            yield Problem(
                name,
                "ResourcesNotAllowed",
                f"{name} is {value}; organization {organization.metadata.name} may have one of "
                f"{values}. Change the file and tag a new release, or ask the administrator.",
            )
    if gpus and not organization.spec.entitlements.gpu:
        yield Problem(
            "gpus",
            "EntitlementRequired",
            f"gpus needs the entitlement gpu, which organization {organization.metadata.name} "
            "does not have; leave it out or ask the administrator.",
        )


def _requires_what_the_host_offers(facts: RequestFacts) -> Iterator[Problem]:
    config, host = facts.config, facts.host
    if config is not None and host is not None:
        yield from host_problems(config, host, facts.spec.gpus)
        yield from staging_problems(config, facts.spec)
    if config is not None:
        yield from keys_without_api(config, host, known=facts.api_known)


def _accepts_the_network(facts: RequestFacts) -> Iterator[Problem]:
    config, host = facts.config, facts.host
    if config is None or host is None or facts.spec.accept_shared_network:
        return
    if host.spec.network_isolation is not NetworkIsolation.POD:
        return
    if config.networks:
        yield Problem(
            "networks",
            "SharedNetworkNotAccepted",
            f"Host {host.metadata.name} has one network for all containers of an enclave and "
            "cannot enforce those of the file; name a Host with networkIsolation Container, or "
            "accept that with spec.acceptSharedNetwork.",
        )
    elif config.version >= NETWORKS_SINCE and len(config.containers) > 1:
        yield Problem(
            "containers",
            "SharedNetworkNotAccepted",
            f"From cvm-version 0.10 on each container has a network of its own, and on Host "
            f"{host.metadata.name} they would share one; set spec.acceptSharedNetwork, or use a "
            "Host with networkIsolation Container.",
        )


def _has_mapped_users(facts: RequestFacts) -> Iterator[Problem]:
    config, host = facts.config, facts.host
    if config is None or host is None:
        return
    if not maps_users(profile(host.spec, without_tee=facts.spec.disable_confidential)):
        return
    for index, container in enumerate(config.containers):
        user = container.user
        if user is not None and max(user.uid, user.gid or 0) > _LAST_USER:
            yield Problem(
                f"containers[{index}].user",
                "UserNotMapped",
                f"Container {container.name} has a user or group above {_LAST_USER}, and Pods on "
                f"Host {host.metadata.name} have a user namespace with {_LAST_USER + 1} of each; "
                "use a smaller number and tag a new release.",
            )


def _resolves_its_secrets(facts: RequestFacts) -> Iterator[Problem]:
    if facts.config is not None:
        yield from binding_problems(
            facts.config,
            facts.spec,
            facts.secrets,
            final=facts.binds_are_final,
            repositories=facts.repositories,
        )


def _uses_its_variables(facts: RequestFacts) -> Iterator[Problem]:
    config = facts.config
    if config is None:
        return
    bare = {each.name for one in config.containers for each in one.env if each.value is None}
    given = {each.name for each in facts.spec.variables}
    for index, variable in enumerate(facts.spec.variables):
        if variable.name not in bare:
            yield Problem(
                f"spec.variables[{index}]",
                "UnusedVariable",
                f"No container of the file lists {variable.name} as a bare name in env.",
                severity=Severity.WARNING,
            )
    for name in sorted(bare - given - {"DOMAIN"}):
        yield Problem(
            "spec.variables",
            "VariableUnset",
            f"The file lists {name} as a bare name and spec.variables has no value for it; it "
            "stays unset.",
            severity=Severity.WARNING,
        )


def _has_its_images(facts: RequestFacts) -> Iterator[Problem]:
    config = facts.config
    if config is None:
        return
    for index, container in enumerate(config.containers):
        failed = facts.images.get(container.image)
        if failed is not None:
            yield Problem(f"containers[{index}].image", failed.reason, failed.message)


SPEC_CHECKS: tuple[Check, ...] = (
    _has_an_organization,
    _has_a_valid_name,
    _has_a_subscription,
    _is_within_the_limit,
    _is_entitled,
    _has_a_host,
    _has_a_ready_host,
    _may_disable_the_tee,
    _binds_secrets_that_exist,
    _names_keys_that_can_log_in,
    _has_a_verified_domain,
)
"""Checks that need only spec and cluster."""


def _fits_into_its_objects(facts: RequestFacts) -> Iterator[Problem]:
    if facts.config is not None and facts.release is not None:
        machine = facts.host is not None and facts.host.spec.tee_unit is TEEUnit.POD
        size = len(facts.release.raw)
        described = {image: each.described for image, each in facts.image_sizes.items()}
        yield from size_problems(facts.config, size, described, machine=machine)


def _fits_onto_a_node(facts: RequestFacts) -> Iterator[Problem]:
    if facts.config is not None:
        yield from image_size_problems(facts.config, facts.image_sizes, facts.image_limit)


FILE_CHECKS: tuple[Check, ...] = (
    _has_a_valid_file,
    _stays_within_resources,
    _requires_what_the_host_offers,
    _accepts_the_network,
    _has_mapped_users,
    _resolves_its_secrets,
    _uses_its_variables,
    _has_its_images,
    _fits_onto_a_node,
    _fits_into_its_objects,
)
"""Checks that need the release."""

"""The one table of reasons: each word that conditions, Enclaves and refusals use, and its remedy.

`docs/reasons.md` shows the same table to users; a test compares the two. Words are stable: programs
match on them.
"""

from cloister_crds.lifecycle.state.conditions import STATES, Reason, ReasonKind
from cloister_crds.lifecycle.state.conditions import final as _final
from cloister_crds.lifecycle.state.conditions import open_ as _open
from cloister_crds.lifecycle.state.conditions import transient as _transient

__all__ = [
    "REASONS",
    "Reason",
    "ReasonKind",
    "is_final",
    "is_transient",
    "reason_for",
]

_TRANSIENT = (
    _transient(
        "SourceUnavailable",
        "The source of repositories did not respond.",
        "Wait; if it persists, ask the administrator whether the source can be reached.",
    ),
    _transient(
        "RegistryUnavailable",
        "The image registry did not respond.",
        "Wait; if it persists, check whether the registry of the image can be reached.",
    ),
    _transient(
        "SourceRateLimited",
        "The source of repositories limits the request rate.",
        "Wait; the message has the time.",
    ),
    _transient(
        "SourceUnauthorized",
        "The source of repositories refused the installation's own credentials.",
        "Ask the administrator to renew the credentials of the source.",
    ),
    _transient(
        "RegistryRateLimited",
        "The image registry limits the request rate.",
        "Wait; the message has the time.",
    ),
    _transient(
        "DnsUnavailable",
        "No name server of the domain's zone responded.",
        "Wait; if it persists, check the name servers of the zone.",
    ),
    _transient(
        "ApiUnreachable",
        "Enclaves do not reach the API, which checks keys and signs certificates.",
        "Wait; if it persists, ask the administrator: the conditions of the Host have details.",
    ),
    _transient(
        "CertificateExpired",
        "The certificate of the enclave has expired, and the API signs no new one.",
        "Ask the administrator to bring the API back; the message has why it signs none.",
    ),
    _transient(
        "ClusterUnavailable",
        "The API server did not respond.",
        "Wait; if it persists, ask the administrator.",
    ),
    _transient(
        "InternalError",
        "The operator had an internal error.",
        "Wait; if it persists, send the administrator the message: the operator's log has more.",
    ),
    _transient(
        "ImagePull",
        "The node cannot pull an image.",
        "Read the message; check that the image still exists and may be pulled.",
    ),
    _transient(
        "Unschedulable",
        "No node has room for the enclave.",
        "Wait for room, stop another container, or ask the administrator for nodes.",
    ),
    _transient(
        "PodLost", "The Pod of the enclave was deleted or terminated.", "Nothing; it is replaced."
    ),
    _transient(
        "Evicted",
        "The node or the scheduler evicted the Pod.",
        "Nothing; it is replaced. If it wrote too much to disk, the message says what to change.",
    ),
    _transient("NodeLost", "The node of the Pod is lost.", "Nothing; it is replaced."),
    _transient(
        "HostNotReady",
        "The Host is not ready.",
        "Wait, or ask the administrator about its conditions.",
    ),
    _transient(
        "NoResolver",
        "No name server for the networks of enclaves is known.",
        "Set enclaveNetwork.resolvers of the operator, or make the Service kube-dns in "
        "kube-system.",
    ),
    _transient(
        "RouteRefused",
        "The gateway does not route a host name to the container.",
        "Ask the administrator to correct the listener of the Gateway, as the message describes.",
    ),
    _transient(
        "RuntimeClassMissing",
        "The RuntimeClass that the Host names does not exist.",
        "Install the runtime that provides it, or correct runtimeClassName of the Host.",
    ),
    _transient("NamespaceMissing", "The namespace of the Organization is being created.", "Wait."),
    _transient(
        "NamespaceDeleting",
        "The namespace of the Organization is being deleted.",
        "Wait; it is created again when it is gone.",
    ),
    _transient(
        "LimitsNotCounted",
        "The cluster has not counted yet what the quota of the Organization names, and refuses "
        "creates until it has.",
        "Wait; after an installation it takes up to five minutes.",
    ),
    _transient(
        "SecretValueMissing",
        "The core Secret of a secret, or the key in it, does not exist.",
        "Create the core Secret that the csec's secretRef names; it is seen within a minute.",
    ),
    _transient(
        "SecretNameTaken",
        "An older secret of the organization or of the same repository has the name of this one.",
        "Delete one of the two, or create this one with another spec.name.",
    ),
    _transient(
        "SecretValueUnusable",
        "The value of a secret cannot be an environment variable: it is too long or contains NUL.",
        "Write another value, or name the secret in kebab-case with a hyphen to have it as a file.",
    ),
)

_FINAL = (
    _final(
        "RepositoryNotFound",
        "There is no such repository, or it is private.",
        "Correct spec.repo, or make the repository public.",
    ),
    _final("TagNotFound", "The repository has no such tag.", "Push the tag or correct spec.tag."),
    _final(
        "ReleaseNotPublished",
        "The tag exists and has no published release.",
        "Publish the release of the tag.",
    ),
    _final(
        "ConfigFileNotFound",
        "The repository has no configuration file at the tag.",
        "Add service-config.yml at the root of the repository and tag a new release.",
    ),
    _final(
        "ConfigFileTooLarge",
        "The configuration file is larger than may be deployed.",
        "Make the file smaller and tag a new release.",
    ),
    _final(
        "EnclaveTooLarge",
        "The file and what its images say do not fit into the objects that record an enclave.",
        "Make the part smaller that the message names and tag a new release.",
    ),
    _final(
        "EnclaveRefused",
        "The API server does not accept an object of the enclave.",
        "Read the message: it has the API server's own words.",
    ),
    _final(
        "ConfigFileNotRegular",
        "The configuration file is not a regular file.",
        "Commit the file itself, not a link or a directory, and tag a new release.",
    ),
    _final(
        "NameInvalid",
        "The name of the repository or the tag is not valid.",
        "Correct spec.repo or spec.tag.",
    ),
    _final(
        "SourceRefused",
        "The source of repositories refused, or redirects to a forbidden address.",
        "Read the message and ask the administrator.",
    ),
    _final(
        "TagMoved",
        "The tag points to another commit than the pinned or deployed one.",
        "Set spec.commit to the commit you have checked, or tag a new release.",
    ),
    _final(
        "InvalidConfig",
        "The configuration file has errors.",
        "Correct the fields that the message names and tag a new release.",
    ),
    _final(
        "ImageNotFound",
        "The registry has no such image.",
        "Push the image, or correct its digest in the file and tag a new release.",
    ),
    _final(
        "RegistryUnauthorized",
        "The registry requires credentials for the image.",
        "Make the image public, or give the organization credentials of the registry.",
    ),
    _final(
        "RegistryRefused",
        "The registry refused, or redirects to a forbidden address.",
        "Read the message and ask the administrator.",
    ),
    _final(
        "ReferenceInvalid",
        "The text is not an image reference.",
        "Correct the image in the file and tag a new release.",
    ),
    _final(
        "PlatformMissing",
        "The image does not exist for the platform of the Host.",
        "Build the image for linux/amd64 and tag a new release.",
    ),
    _final(
        "ManifestInvalid",
        "The registry's content is not an image that can be run.",
        "Push the image again and tag a new release.",
    ),
    _final(
        "ImageTooLarge",
        "The images of the file are larger than the installation permits.",
        "Build smaller images and tag a new release, or ask the administrator to raise "
        "registry.maxImageBytes.",
    ),
    _final(
        "TeeOfTheNode",
        "The TEE belongs to the nodes and cannot be switched off for one enclave.",
        "Leave disableConfidential out, or name a Host without TEE.",
    ),
    _final(
        "SharedNetworkNotAccepted",
        "The Host cannot isolate the containers of the file on the network.",
        "Set spec.acceptSharedNetwork, or name a Host with networkIsolation Container.",
    ),
    _final(
        "UserNotMapped",
        "A container has a user outside the user namespace of its Pod.",
        "Set a user and group up to 65535 in the file and tag a new release.",
    ),
    _final(
        "BootFailed",
        "A container of the enclave exited with an error while it started.",
        "Read the exit code and the message, correct the release or its variables, and relaunch.",
    ),
    _final(
        "MeasurementMismatch",
        "A document of the enclave is not the one that was measured.",
        "Relaunch. If that repeats, find out who changes documents on their way: in the cluster's "
        "storage, at the API server, or on the node.",
    ),
    _final(
        "ModelInvalid",
        "A model is not the one that the file names.",
        "Read the message: add the right image to the model store, or correct the model's mpk "
        "and repo in the file, and relaunch.",
    ),
    _final(
        "HealthcheckFailed",
        "A container became unhealthy while the enclave started.",
        "Read the output, correct the release or its healthcheck, and relaunch.",
    ),
    _final(
        "ProgressDeadlineExceeded",
        "The enclave was not ready within the deadline.",
        "Read the message for what it waited for, correct it, and relaunch.",
    ),
    _final(
        "AttemptsExhausted",
        "The enclave was lost too often before it was ready.",
        "Read the message for the cause, correct it, and relaunch.",
    ),
    _final("UpdateFailed", "The update failed; the release before it serves.", "Read the message."),
)

_OPEN = (
    _open(
        "NamespaceNotOurs",
        "The namespace that the Organization names belongs to somebody else.",
        "Label the namespace as the message describes, or create an Organization with another one.",
        recheck=True,
    ),
    _open(
        "NamespaceRefused",
        "The namespace that the Organization names belongs to the cluster.",
        "Create an Organization with another namespace.",
    ),
    _open(
        "OrganizationNotFound",
        "No Organization owns the namespace.",
        "Create the Container in the namespace of an Organization.",
    ),
    _open(
        "OrganizationDeleting",
        "The organization is being deleted; nothing new starts in it.",
        "Create the container in another organization.",
    ),
    _open(
        "SubscriptionRequired",
        "The organization has no active container subscription.",
        "Subscribe; running enclaves continue to serve.",
    ),
    _open(
        "LimitReached",
        "The organization has reached its limit of containers.",
        "Delete a container, or ask the administrator for a higher limit.",
        recheck=True,
    ),
    _open(
        "ApiAddressMissing",
        "The file requires API keys, and enclaves do not know where these are checked.",
        "Ask the administrator to set apiAddress in the operator's settings.",
    ),
    _open(
        "EntitlementRequired",
        "The organization may not use this.",
        "Leave out the field that the message names, or ask the administrator.",
    ),
    _open(
        "InvalidName",
        "The name cannot be part of a host name.",
        "Use up to 64 lowercase letters, digits and hyphens, with no hyphen at the ends.",
    ),
    _open(
        "HostnameTaken",
        "Another container holds the host name.",
        "Choose another name, or delete the other container.",
        recheck=True,
    ),
    _open("HostNotFound", "There is no such Host.", "Correct spec.host."),
    _open(
        "NoDefaultHost",
        "No Host is the default one, and spec.host is not set.",
        "Set spec.host, or ask the administrator to mark a Host as default.",
    ),
    _open(
        "ResourcesNotAllowed",
        "The file requests more than the organization may have.",
        "Change cpus, memory or gpus in the file, or ask the administrator.",
    ),
    _open(
        "NoModelStore",
        "The Host has no model store.",
        "Name a Host with a model store, or ask the administrator for one.",
    ),
    _open(
        "ModelNotFound",
        "The model store of the Host does not have a model.",
        "Correct the model's mpk in the file, or ask the administrator to add the model; "
        "relaunch if an enclave failed for it.",
    ),
    _open(
        "GpusNotAvailable",
        "The Host does not offer the requested GPUs.",
        "Read the message; change gpus, or name another Host.",
    ),
    _open(
        "StagingNotPossible",
        "An update with more than one GPU uses the Recreate strategy and cannot be staged.",
        "Set spec.staging to false.",
    ),
    _open(
        "UpdateEnded",
        "A stop or a restore ended the update that spec requests; the release before it serves.",
        "Put spec back to what serves; change it again to try the update another time.",
    ),
    _open(
        "Replaced",
        "Another Container has replaced this one, whose enclaves are deleted.",
        "Delete this Container.",
    ),
    _open(
        "DeviceNotAvailable",
        "The Host does not offer a device of the file.",
        "Remove the device from the file, name another Host, or ask the administrator.",
    ),
    _open(
        "CapabilityNotAvailable",
        "A capability of the file would hold for the whole node of the Host.",
        "Remove the capability from the file, or name another Host.",
    ),
    _open(
        "SecretNotFound",
        "The file or spec names a secret that cannot be found.",
        "Create the csec, and bind an organization secret in spec.secrets.",
    ),
    _open(
        "SecretNotBound",
        "The file names a secret of the organization that the Container does not bind.",
        "Add the name to spec.secrets.",
    ),
    _open(
        "DomainNotFound",
        "The organization has no such custom domain.",
        "Create a Domain with that name and its DNS records, or leave out spec.customDomain.",
    ),
    _open(
        "DomainNotVerified",
        "The records of the custom domain were not seen.",
        "Create the TXT and CNAME records that the Domain's status lists.",
    ),
    _open(
        "DomainReserved",
        "The custom domain is below the domain of generated host names.",
        "Create a Domain for a name of a domain of your own.",
    ),
    _open(
        "DomainLost",
        "The TXT record of the custom domain is gone; it is served for a grace period.",
        "Create the TXT record again before the time in the message.",
    ),
    _open(
        "DomainDropped",
        "The TXT record of the custom domain has been gone for too long; it is no longer served.",
        "Create the TXT record again, or set another spec.customDomain.",
    ),
    _open(
        "DomainsNotConfigured",
        "The installation has no settings for custom domains.",
        "Ask the administrator to set domains in the operator's settings.",
    ),
    _open(
        "CredentialsInvalid",
        "The core Secret has no credentials that can be used.",
        "Store a Docker configuration for the registry in it, as the message describes.",
    ),
    _open(
        "CredentialsExpired",
        "The registry refused the credentials when they were last used.",
        "Store new credentials in the core Secret.",
    ),
    _open(
        "InvalidObject",
        "The object, or one that the operator needs for it or makes of it, breaks a rule of its "
        "kind.",
        "Change the fields that the message names.",
    ),
    _open(
        "SSHKeyNotFound",
        "spec names an SSHKey that cannot be found.",
        "Create the SSHKey, or remove its name from spec.sshKeys.",
    ),
    _open(
        "SSHKeyInvalid",
        "The public key cannot be used.",
        "Read the message, and create another SSHKey from the whole line of the .pub file.",
    ),
)

REASONS: dict[str, Reason] = {
    reason.word: reason for reason in (*STATES, *_TRANSIENT, *_FINAL, *_OPEN)
}
"""Every reason by its word."""


def reason_for(code: str) -> Reason:
    """Return the reason of a problem's code; codes of the file all mean ``InvalidConfig``."""
    return REASONS.get(code, REASONS["InvalidConfig"])


def is_transient(word: str) -> bool:
    """Return whether something failed for a temporary reason, which is retried."""
    return reason_for(word).kind is ReasonKind.TRANSIENT


def is_final(word: str) -> bool:
    """Return whether only a new request helps."""
    return reason_for(word).final

"""The reasons that describe a state, in which nothing is wrong; `reasons` has the whole table."""

from cloister_crds.lifecycle.state.reason import state as _state

__all__ = ["STATES"]

STATES = (
    _state("Serving", "The release that spec requests serves.", event=True),
    _state(
        "Stopped",
        "The container is stopped, as spec requests.",
        "Set spec.state to Running.",
        event=True,
    ),
    _state("Stopping", "Its enclaves are being deleted."),
    _state(
        "Deleting",
        "The object is being deleted; what belongs to it ends first.",
        "Wait; the message names what it waits for.",
    ),
    _state(
        "Paused",
        "An administrator paused the container; what spec requests is not considered.",
        "Ask the administrator to take the annotation cloister.dev/paused away.",
    ),
    _state("Resolving", "The release, its images, secrets and host name are being looked up."),
    _state("Deploying", "An enclave was created and its Pod is not up yet.", event=True),
    _state("Starting", "The Pod is up and the health checks run."),
    _state("Healthy", "Every container of the enclave has started and is healthy.", event=True),
    _state("Routing", "The enclave is ready and the Service is being pointed at it."),
    _state(
        "Updating", "The present release serves while the new one starts beside it.", event=True
    ),
    _state(
        "StopFirst",
        "The present release is deleted before the new one starts, which needs its GPUs.",
        event=True,
    ),
    _state(
        "AwaitingPromotion",
        "The update is ready and waits; the release before it serves.",
        "Set spec.promote to status.update.revision, or accept the update.",
        event=True,
    ),
    _state("Draining", "Requests go to the next enclave; open ones may end.", event=True),
    _state(
        "Drained", "The enclave of the previous release has drained and is deleted.", event=True
    ),
    _state(
        "AwaitingMetering",
        "A deleted enclave waits for the API to meter its run time.",
        "Check that the API runs with metering and reaches its ledger.",
    ),
    _state("RouteAccepted", "The gateway routes the host names to the container."),
    _state(
        "RoutePending",
        "The gateway has not confirmed yet that it routes the host names to the container.",
        "Wait; if it persists, ask the administrator whether the controller of the Gateway runs.",
    ),
    _state("NoTee", "The Host has no trusted execution environment."),
    _state("Attested", "The machine of the enclave gave evidence of its TEE."),
    _state("NotAttested", "The machine of the enclave has given no evidence yet."),
    _state(
        "NodeAttested",
        "The node gave evidence of its TEE, which measures no single enclave.",
        "Use a Host with teeUnit Pod.",
    ),
    _state("DebugEnclave", "A debug enclave permits logins."),
    _state("TeeSwitchedOff", "The request switched the TEE of the Host off."),
    _state(
        "NoGuestPolicy",
        "Rules that this release does not know judge what whoever runs the node requests of the "
        "machine.",
        "Leave policy.rego out of spec.initdata of the Host, and relaunch older enclaves.",
    ),
    _state("SecretsInCluster", "Values of secrets come from core Secrets of the cluster."),
    _state("SharedNetwork", "The containers of the enclave share one network namespace."),
    _state("OwnNetworks", "Each container of the enclave has only the networks of the file."),
    _state("HostCannot", "Fields of the file that this Host cannot enforce."),
    _state("NodesReady", "The Host has nodes that are ready."),
    _state(
        "NoNode",
        "No ready node matches the Host; enclaves wait for one.",
        "Add a node with the labels of the Host's nodeSelector.",
    ),
    _state("ApiAnswers", "The API accepts connections at the address that enclaves use."),
    _state("NamespaceReady", "The Organization has its namespace."),
    _state(
        "AwaitingContainers",
        "The Organization is being deleted and waits for what runs in its namespace.",
        "Delete the Containers that the message names.",
    ),
    _state("WithinLimits", "The organization has no more of anything than its limits permit."),
    _state(
        "AboveLimits",
        "The organization has more than a limit permits; nothing is deleted, creates are refused.",
        "Delete what the message names, or raise spec.limits of the Organization.",
    ),
    _state("Counted", "The Containers of the repository were counted."),
    _state("ValueFound", "The value of the secret can be read."),
    _state("KeyUsable", "The key can log in to debug enclaves that name it."),
    _state("DomainVerified", "The records of the custom domain were seen.", event=True),
    _state("CredentialsUsable", "The credentials of the registry can be read."),
)
"""In the order of the manual."""

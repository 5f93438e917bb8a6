"""Where things are inside an enclave: the one table of the operator's builders and the guest.

Most paths reach the guest in its documents. It is compiled with those of `COMPILED`, which
``python -m dev.house generate`` writes into its package `paths`. Directories are those whose
names have no ending.
"""

from cloister_crds.measurement.enclave import FILE_ENTRY

# The guest's own directory in every container: one mount, which nothing can move away.
GUEST = "/.cloister"
GUEST_BINARY = f"{GUEST}/bin/guest"
SPEC = f"{GUEST}/spec"
# What only `guest keep` has: the measurement as it was published, before it is verified.
PUBLISHED = f"{GUEST}/published"
# Each container's own sockets.
OWN_WIRING = f"{GUEST}/wiring"
OWN_REPORT = f"{GUEST}/report"
OWN_SHELL = f"{GUEST}/ssh"
SHELL_SOCKET = "shell.sock"

# Documents: a key of the ConfigMap each, which is the file's name, and where its reader has it.
UNMEASURED_KEY = "unmeasured.json"  # next to the documents of the parts that need it
AGENT_KEY = "agent.json"
CONFIG_KEY = FILE_ENTRY  # the raw bytes; also its name in the service mount
AGENT_CONFIG = "/etc/cloister-agent"
METRICS = "/etc/cloister-metrics"
CERTIFICATE_KEY = "certificate.json"
AUTHORITIES_KEY = "api-authorities.pem"  # that the API's certificate must chain to
CERTIFICATE_CONFIG = "/etc/cloister-certificate"
GATE_KEY = "gate.json"
GATE_CONFIG = "/etc/cloister-gate"
BODIES_KEY = "ehbp.json"
BODIES_CONFIG = "/etc/cloister-ehbp"
MODELS_KEY = "models.json"
MODELS_CONFIG = "/etc/cloister-models"
NETWORK_KEY = "network.json"
NETWORK_CONFIG = "/etc/cloister-network"
SSH_KEY = "ssh.json"
SSH_CONFIG = "/etc/cloister-ssh"
SHIM_KEY = "shim.json"
SHIM_CONFIG = "/etc/cloister-shim"

# The agent: its socket for the shim and its state; a directory with the report socket of each
# container; the containers' service mount.
AGENT = "/run/cloister/agent"
REPORT = "/run/cloister/report"
SERVICE = "/run/cloister/service"
# The TLS key, its certificate and the key's fingerprint, which the agent attests, and the
# enclave's token for the API. The shim finds the certificates in a store of its own form.
CERTIFICATE = "/run/cloister/certificate"
CHAIN_FILE = f"{CERTIFICATE}/tls.crt"
FINGERPRINT_FILE = f"{CERTIFICATE}/tls.spki"
SHIM_STORE = f"{CERTIFICATE}/shim"
TOKEN = "/run/cloister/token"  # noqa: S105 - a path
TOKEN_FILE = "token"  # noqa: S105 - a name
# Memory with the keys of the shim's own certificate authority, lost with the Pod.
SHIM_DATA = "/data"
GATE = "/run/cloister/gate"
GATE_SOCKET = f"{GATE}/gate.sock"
# Encrypted bodies: the socket and the public key for the shim and the agent; the private key.
BODIES = "/run/cloister/ehbp"
BODIES_SOCKET = f"{BODIES}/ehbp.sock"
BODIES_PUBLIC_KEY = f"{BODIES}/hpke.pub"
BODIES_PRIVATE_KEY = "/run/cloister/ehbp-key"
# Models: their images, the files (``mpk`` in the service mount) and the progress.
MODELS_STORE = "/run/cloister/store"
MODELS = "/run/cloister/mpk"
MODELS_STATUS = "/run/cloister/models"
MODELS_STATUS_FILE = f"{MODELS_STATUS}/status.json"
NETWORK = "/run/cloister/network"
NETWORK_STATUS_FILE = f"{NETWORK}/status.json"
KEEPER = "/run/cloister/keep"
KEEPER_SOCKET = f"{KEEPER}/keeper.sock"
# SSH: a directory with the socket of each container; the host key, of which the shim serves the
# public half.
SHELLS = "/run/cloister/shells"
HOST_KEY = "/run/cloister/ssh"
PUBLIC_HOST_KEY = "/run/cloister/ssh-public"

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the mount point of shared memory
TERMINATION_LOG = "/dev/termination-log"  # the kubelet's default

COMPILED = {
    "Guest": GUEST,
    "ChainFile": CHAIN_FILE,
    "FingerprintFile": FINGERPRINT_FILE,
    "BodiesPublicKey": BODIES_PUBLIC_KEY,
    "TerminationLog": TERMINATION_LOG,
}

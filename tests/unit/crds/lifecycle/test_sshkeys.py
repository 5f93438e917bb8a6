"""SSHKeys: their type, what is wrong with them, who names them, how an Enclave gets them."""

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cloister_crds.kinds import SSHKey
from cloister_crds.lifecycle.admission.keys import key_error, keys_of, named_by, ssh_key_status
from cloister_crds.lifecycle.admission.validation import RequestFacts, spec_problems
from cloister_crds.lifecycle.state.conditions import condition, holds
from tests.support.builders.resources import NOW, container_of, host_of, organization_of


def line(public: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> str:
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


GOOD = line(ed25519.Ed25519PrivateKey.from_private_bytes(b"1" * 32).public_key())


ENDS_EARLY = "ssh-ed25519 " + b64encode(b"\0\0\0\x0bssh-ed25519").decode()
"""A whole field of a type, and no key after it."""


def key(public: str = GOOD, name: str = "me") -> SSHKey:
    return SSHKey.read({"metadata": {"name": name, "generation": 1}, "spec": {"publicKey": public}})


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_keys_of_all_curves_can_be_used(curve: ec.EllipticCurve) -> None:
    assert key_error(line(ec.generate_private_key(curve).public_key())) is None


def test_long_enough_rsa_keys_can_be_used() -> None:
    long, short = (rsa.generate_private_key(65537, bits) for bits in (2048, 1024))
    assert key_error(line(long.public_key()) + " me@home") is None
    assert "1024 bits" in str(key_error(line(short.public_key())))


@pytest.mark.spec("8.5")
@pytest.mark.parametrize(
    ("public", "want"),
    [
        ("ssh-ed25519 AAAA", "cut off"),
        (GOOD[:-10], "cut off"),
        (GOOD.replace("ssh-ed25519 ", "ssh-rsa "), "another type"),
        ("ssh-rsa AAAAB3NzaC1yc2E=", "cut off"),
        (ENDS_EARLY, "cut off"),
        (GOOD.replace("AAAAI", "AAAAH", 1), "cut off"),
    ],
    ids=["short", "cut", "type", "rsa", "no key", "length"],
)
def test_damaged_keys_are_told(public: str, want: str) -> None:
    assert want in str(key_error(public))
    status = ssh_key_status(key(public), (), NOW)
    ready = condition(status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "SSHKeyInvalid"
    assert want in ready.message
    assert holds(status.conditions, "Stalled")


def test_type_and_users_are_shown() -> None:
    containers = [
        container_of("b", debug=True, ssh_keys=("me",)),
        container_of("a", debug=True, ssh_keys=("you", "me")),
        container_of("c"),
    ]
    status = ssh_key_status(key(), containers, NOW)
    assert (status.key_type, status.used_by) == ("ssh-ed25519", ("a", "b"))
    assert holds(status.conditions, "Ready")
    assert [each.metadata.name for each in named_by("you", containers)] == ["a"]


def test_an_enclave_gets_the_keys_that_exist_in_order() -> None:
    keys = keys_of(["me", "gone", "alice"], [key(), key(name="alice"), key(name="other")])
    assert [(each.name, each.public_key) for each in keys] == [("alice", GOOD), ("me", GOOD)]


@pytest.mark.parametrize(
    ("keys", "code"), [((), "SSHKeyNotFound"), ((key("ssh-ed25519 AAAA me"),), "SSHKeyInvalid")]
)
def test_a_key_that_cannot_log_in_is_refused(keys: tuple[SSHKey, ...], code: str) -> None:
    spec = container_of(debug=True, ssh_keys=("me",)).spec
    question = RequestFacts(
        name="web", spec=spec, organization=organization_of(), hosts=(host_of(),), ssh_keys=keys
    )
    (problem,) = spec_problems(question)
    assert (problem.field, problem.code) == ("spec.sshKeys[0]", code)

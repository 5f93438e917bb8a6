"""Signs what a release puts into a registry or a folder, by cosign and a key pair.

Nothing but the registry is spoken to: no transparency log, no time stamps. Whoever verifies needs
the public key alone. The key is given by reference and is never stored.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from dev.cluster.binaries import binary
from dev.images.registry import is_here
from dev.release.errors import ReleaseError

KEY: Final = "COSIGN_KEY"
"""Variable with the private key: a file, or an address of a key service as cosign takes it."""
PASSWORD: Final = "COSIGN_PASSWORD"
"""Variable with the password of a key in a file; cosign reads it itself."""
NO_SERVICES: Final = {
    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
    "rekorTlogConfig": {},
    "tsaConfig": {},
}
"""Configuration of a signature without a transparency log and without time stamps."""
SHOWN: Final = 1000
"""Characters of what cosign said that an error shows."""


class Attested(StrEnum):
    """What is attached to an image, signed, by cosign's word for it."""

    BILL = "cyclonedx"
    PROVENANCE = "slsaprovenance1"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with one key.

    Attributes
    ----------
    key
        As `KEY` has it.
    """

    key: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Signer | None":
        """Return the signer that the environment names; None = it names none.

        Raises
        ------
        ReleaseError
            When the key is a file without which, or without whose password, nothing can be signed.
        """
        key = environment.get(KEY, "")
        if not key:
            return None
        if "://" not in key:
            if not Path(key).is_file():
                raise ReleaseError(
                    f"{KEY} names {key}, which is no file: make one with `cosign generate-key-pair`"
                )
            if PASSWORD not in environment:
                raise ReleaseError(
                    f"{PASSWORD} is not set: put the password of {key} into it, empty for none"
                )
        return cls(key)

    def public_key(self) -> str:
        """Return the public key, PEM.

        Raises
        ------
        ReleaseError
            When the key cannot be read.
        """
        return _cosign("public-key", "--key", self.key)

    def sign(self, reference: str) -> None:
        """Sign an image or a chart, and all images that an index names.

        Parameters
        ----------
        reference
            ``host/path@digest``.

        Raises
        ------
        ReleaseError
            When the key cannot be used or the registry refuses.
        """
        self._with_services_off("sign", "--recursive", *_way_to(reference), reference)

    def attest(self, reference: str, what: Attested, predicate: Path) -> None:
        """Attach a document about an image or a chart to it, signed.

        Parameters
        ----------
        reference
            ``host/path@digest``.
        predicate
            File with the document.

        Raises
        ------
        ReleaseError
            When the key cannot be used or the registry refuses.
        """
        said = ("--predicate", str(predicate), "--type", what)
        self._with_services_off("attest", *said, *_way_to(reference), reference)

    def sign_file(self, path: Path, bundle: Path) -> None:
        """Sign a file.

        Raises
        ------
        ReleaseError
            When the key cannot be used.
        """
        self._with_services_off("sign-blob", "--bundle", str(bundle), str(path))

    def _with_services_off(self, command: str, *arguments: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "signing-config.json"
            config.write_text(json.dumps(NO_SERVICES))
            asked = ("--key", self.key, "--signing-config", str(config), "--yes")
            _cosign(command, *asked, *arguments)


def verify_command(reference: str, public_key: Path, what: Attested | None = None) -> list[str]:
    """Return the words of cosign that verify an image or a chart, as docs/images.md has them.

    Parameters
    ----------
    reference
        ``host/path@digest`` or ``host/path:tag``.
    what
        A document that is attached to it, which is verified in place of itself.
    """
    command = ["verify-attestation", "--type", str(what)] if what else ["verify"]
    checked = ["--key", str(public_key), "--insecure-ignore-tlog=true"]
    return [*command, *checked, *_way_to(reference), reference]


def _way_to(reference: str) -> list[str]:
    """Return that a registry of this machine has no TLS."""
    return ["--allow-http-registry"] if is_here(reference) else []


def _cosign(*arguments: str) -> str:
    """Run cosign, which finds the password in the environment.

    Raises
    ------
    ReleaseError
        When it fails.
    """
    done = subprocess.run(
        [binary("cosign"), *arguments],
        stdin=subprocess.DEVNULL,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseError(f"cosign {arguments[0]} failed: {done.stderr.strip()[-SHOWN:]}")
    return done.stdout

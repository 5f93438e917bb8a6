"""Images: references that are pinned by digest.

Sources: spec 42.2, 42.28; the reference grammar of the OCI distribution project.
"""

import re
from typing import Final

from cloister_crds.config.syntax.reading import Spot, show

__all__ = ["IMAGE_PATTERN", "ZERO_DIGEST", "read_image"]

PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
HOST: Final = rf"(?:{LABEL}(?:\.{LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
NAME: Final = rf"(?:{HOST}/)?{PART}(?:/{PART})*"
TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
IMAGE_PATTERN: Final = rf"{NAME}(?::{TAG})?@sha256:[0-9a-f]{{64}}"
"""What an image looks like."""

NAME_AND_TAG = re.compile(rf"({NAME})(?::({TAG}))?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_NAME: Final = 255
ZERO_DIGEST: Final = "sha256:" + "0" * 64
"""The placeholder that a release workflow replaces."""


def read_image(spot: Spot) -> str | None:
    """Read the reference of an image; it stays as it is written."""
    text = spot.text("an image with its digest, such as ghcr.io/me/app:v1@sha256:<64 hex>")
    if text is None:
        return None
    if "://" in text:
        spot.error("InvalidImage", f"is {show(text)}: write it without a scheme such as https://")
        return None
    name, at, digest = text.partition("@")
    right = _check_name(spot, name)
    if not at:
        message = (
            f"{show(text)} has no digest, and a tag can move: append @sha256: and the 64 hex "
            "digits that the registry shows"
        )
        spot.error("ImageWithoutDigest", message)
        return None
    if not DIGEST.fullmatch(digest):
        message = f"the digest {show(digest)} is not sha256: and 64 hex digits in lower case"
        spot.error("InvalidDigest", f"{message}: copy it from the registry")
        return None
    if digest == ZERO_DIGEST:
        _placeholder(spot)
    return text if right else None


def _check_name(spot: Spot, name: str) -> bool:
    """Check what is before the digest."""
    found = NAME_AND_TAG.fullmatch(name) if len(name) <= 2 * MAX_NAME else None
    if found is not None and len(found[1]) <= MAX_NAME:
        return True
    message = f"{show(name)} is not an image name: write registry/path:tag in lower case, such as "
    spot.error("InvalidImage", message + "ghcr.io/me/app:v1")
    return False


def _placeholder(spot: Spot) -> None:
    """Report the digest of zeros, which is right on a branch and wrong in a release."""
    message = "the digest is the placeholder of zeros"
    if spot.report.rules.release:
        remedy = "let the release workflow write the digest that it built"
        spot.error("PlaceholderDigest", f"{message}, which no registry has: {remedy}")
    else:
        remedy = "the release must carry the real digest"
        spot.warn("PlaceholderDigest", f"{message}: {remedy}")

"""Images pinned by digest, and model weights that are pinned, verified and mounted."""

import re
from typing import Any, Final

from cloister_crds.config.limits import MAX_MODELS
from cloister_crds.config.model import ModelSpec
from cloister_crds.config.syntax.reading import Field, Section, Spot, Table, read_section, show

__all__ = ["IMAGE_PATTERN", "MODEL", "ZERO_DIGEST", "check_models", "read_image", "read_models"]

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


NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
OWNER: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
REPO_PATTERN: Final = rf"{OWNER}/{OWNER}@[0-9a-f]{{40}}"
UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
MPK_PATTERN: Final = rf"[0-9a-f]{{64}}_[1-9][0-9]{{0,17}}_{UUID}"
BLOCK: Final = 4096
"""Bytes of a block of the hash tree."""


def _read_name(spot: Spot) -> str | None:
    text = spot.text("a name")
    if text is not None and not re.fullmatch(NAME_PATTERN, text):
        message = "write 1 to 128 letters, digits, dots, hyphens and underscores"
        spot.error("InvalidName", f"{show(text)} is not a model name: {message}")
        return None
    return text


def _read_repo(spot: Spot) -> str | None:
    text = spot.text("owner/model@<commit>")
    if text is not None and not re.fullmatch(REPO_PATTERN, text):
        message = "write owner/model@ and the commit's 40 hex digits in lower case"
        spot.error("InvalidModelRepo", f"{show(text)} pins no commit of a model: {message}")
        return None
    return text


def _read_mpk(spot: Spot) -> str | None:
    text = spot.text("the generated ROOTHASH_OFFSET_UUID")
    if text is None:
        return None
    if not re.fullmatch(MPK_PATTERN, text):
        message = "keep ROOTHASH_OFFSET_UUID (64 hex digits, bytes, a UUID) as it was generated"
        spot.error("InvalidMpk", f"{show(text)} is not generated metadata: {message}")
        return None
    offset = int(text.split("_")[1])
    if offset % BLOCK:
        message = f"the offset {offset} is not a multiple of {BLOCK}: keep the value as generated"
        spot.error("InvalidMpk", message)
        return None
    return text


LATER: Final = "is of a later generation of the format and not supported here: remove it"

MODEL: Final = Table(
    noun="a model",
    fields=(
        Field(
            "name",
            _read_name,
            {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
            "Name of the model.",
            required=True,
            missing="write a name",
        ),
        Field(
            "repo",
            _read_repo,
            {"type": "string", "pattern": f"^{REPO_PATTERN}$"},
            "Where the weights come from: owner/model@commit.",
            required=True,
            missing="write owner/model@<commit>",
        ),
        Field(
            "mpk",
            _read_mpk,
            {"type": "string", "pattern": f"^{MPK_PATTERN}$"},
            "Generated metadata: root hash, offset and UUID of the hash tree.",
            required=True,
            missing="write the generated ROOTHASH_OFFSET_UUID",
        ),
    ),
    refused={key: ("NotSupported", f"{key} {LATER}") for key in ("mwp", "emwp", "key-secret")},
    hints={"id": "write name, repo and mpk"},
)
"""The keys of a model."""


def read_models(spot: Spot) -> tuple[Section, ...] | None:
    """Read the list of models."""
    items = spot.items(MAX_MODELS, "a list of models")
    if items is None:
        return None
    sections = [read_section(item, MODEL) for item in items]
    return tuple(section for section in sections if section is not None)


def check_models(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """Refuse weights that are listed twice, and give what a `ModelSpec` is made of."""
    names: set[str] = set()
    hashes: set[str] = set()
    models = []
    for section in sections:
        name, mpk, repo = (section.get(key, "") for key in ("name", "mpk", "repo"))
        if name in names:
            message = f"another model is named {name}: give each its own name"
            section.at("name").warn("DuplicateName", message)
        root = mpk.split("_")[0]
        if root and root in hashes:
            message = "another model has this root hash: list the same weights once"
            section.at("mpk").error("DuplicateModel", message)
        names |= {name} - {""}
        hashes |= {root} - {""}
        if name and mpk and repo:
            models.append(_spec(name, repo, mpk).model_dump())
    return models


def _spec(name: str, repo: str, mpk: str) -> ModelSpec:
    source, _, commit = repo.partition("@")
    root, offset, uuid = mpk.split("_")
    return ModelSpec(
        name=name,
        repo=source,
        commit=commit,
        mpk=mpk,
        root_hash=root,
        offset=int(offset),
        uuid=uuid,
    )

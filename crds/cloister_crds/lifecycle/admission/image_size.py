"""Whether the images of a file are too large for the nodes that pull them. Pure.

Every image of an enclave is on its node's disk, which its neighbours share. What counts is what is
pulled: nodes compare it with the content. What it unpacks to is in no manifest.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cloister_crds.config.model import ServiceConfig
from cloister_crds.problems import Problem

__all__ = ["ImageSize", "image_size_problems"]


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
    config
        The file.
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

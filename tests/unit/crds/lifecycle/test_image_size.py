"""How large the images of a file may be, as they are pulled."""

import pytest

from cloister_crds.config.model import ContainerConfig
from cloister_crds.lifecycle.admission.limits import ImageSize
from cloister_crds.lifecycle.admission.validation import RequestFacts, file_problems
from tests.support.builders.resources import (
    IMAGE,
    container_of,
    file_of,
    host_of,
    organization_of,
    release_of,
)

GIB = 1024**3
OTHER = IMAGE.replace("@", "-2@")


@pytest.mark.parametrize(
    ("sizes", "limit", "fields"),
    [
        ({IMAGE: 2 * GIB}, 2 * GIB, []),
        ({IMAGE: 2 * GIB + 1}, 2 * GIB, ["containers[0].image", "containers[2].image"]),
        ({IMAGE: GIB, OTHER: GIB}, 2 * GIB, []),
        ({IMAGE: GIB, OTHER: GIB + 1}, 2 * GIB, ["containers"]),
        ({OTHER: 3 * GIB}, 2 * GIB, ["containers[1].image"]),
        ({}, 2 * GIB, []),
    ],
)
def test_images_that_fill_a_node_are_refused(
    sizes: dict[str, int], limit: int, fields: list[str]
) -> None:
    """An image that two containers have is pulled once."""
    containers = [
        ContainerConfig(name=name, image=image)
        for name, image in (("a", IMAGE), ("b", OTHER), ("c", IMAGE))
    ]
    known = {image: ImageSize(100, size) for image, size in sizes.items()}
    release = release_of(config=file_of(containers=tuple(containers)))
    asked = RequestFacts(
        name="web",
        spec=container_of().spec,
        organization=organization_of(),
        hosts=(host_of(),),
        release=release,
        image_sizes=known,
        image_limit=limit,
    )
    mine = [each for each in file_problems(asked) if each.code == "ImageTooLarge"]
    assert [each.field for each in mine] == fields
    assert all(f"at most {limit} " in each.message for each in mine)
    assert all("registry.maxImageBytes" in each.message for each in mine)

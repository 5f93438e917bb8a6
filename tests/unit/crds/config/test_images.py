"""Images."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ParsedConfig, Rules, parse

HEX = "ab" * 32
ZERO = "0" * 64


@pytest.mark.spec("42.2", "42.28")
@pytest.mark.parametrize(
    "image",
    [
        f"app@sha256:{HEX}",
        f"traefik/whoami@sha256:{HEX}",
        f"docker.io/me/app:v1.2@sha256:{HEX}",
        f"localhost:5000/a/b/c__d/e-f.g:latest@sha256:{HEX}",
        f"registry.example.com:443/App-Team/app@sha256:{HEX}".replace("App-Team", "app-team"),
        f"[2001:db8::1]:5000/app@sha256:{HEX}",
        f"ghcr.io/me/app:v1@sha256:{HEX}",
    ],
)
def test_images_with_digest(verdict: Callable[..., list[str]], image: str) -> None:
    assert verdict(image=f"image: '{image}'") == []


@pytest.mark.spec("42.2", "42.28")
@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("ghcr.io/me/app:v1", "ImageWithoutDigest"),
        ("app", "ImageWithoutDigest"),
        ("app@sha256:abc", "InvalidDigest"),
        (f"app@sha256:{HEX.upper()}", "InvalidDigest"),
        (f"app@sha512:{HEX}", "InvalidDigest"),
        (f"app@{HEX}", "InvalidDigest"),
        ("app@", "InvalidDigest"),
        (f"https://ghcr.io/me/app@sha256:{HEX}", "InvalidImage"),
        (f"Me/App@sha256:{HEX}", "InvalidImage"),
        (f"app:@sha256:{HEX}", "InvalidImage"),
        (f"a//b@sha256:{HEX}", "InvalidImage"),
        (f"@sha256:{HEX}", "InvalidImage"),
        (f"{'a' * 256}@sha256:{HEX}", "InvalidImage"),
        (f"app:{'t' * 129}@sha256:{HEX}", "InvalidImage"),
        (f"a b@sha256:{HEX}", "InvalidImage"),
    ],
)
def test_images_that_are_refused(verdict: Callable[..., list[str]], image: str, code: str) -> None:
    assert verdict(image=f"image: '{image}'") == [f"containers[0].image {code}"]


def test_the_advice_for_a_long_name_is_whole() -> None:
    name = "registry.example.test/" + "a" * 120 + "/app:v1"
    text = f"""cvm-version: 0.10.0
cpus: 2
memory: 8192
containers:
- {{name: web, image: '{name}'}}
shim: {{upstream-port: 80, paths: [/]}}
"""
    (problem,) = parse(text.encode()).problems
    assert problem.message.endswith("append @sha256: and the 64 hex digits that the registry shows")


@pytest.mark.spec("42.2")
def test_image_is_required(verdict: Callable[..., list[str]]) -> None:
    assert verdict(image="") == ["containers[0].image RequiredField"]


@pytest.mark.spec("42.2", "42.28")
def test_two_problems_of_one_image(verdict: Callable[..., list[str]]) -> None:
    assert verdict(image="image: Me/App:latest") == [
        "containers[0].image InvalidImage",
        "containers[0].image ImageWithoutDigest",
    ]


@pytest.mark.spec("42.2", "42.28")
def test_the_placeholder_is_right_on_a_branch_only(judged: Callable[..., ParsedConfig]) -> None:
    image = f"image: app@sha256:{ZERO}"
    branch = judged(image=image)
    assert branch.valid
    assert [one.code for one in branch.warnings] == ["PlaceholderDigest"]
    release = judged(image=image, rules=Rules(release=True))
    assert [one.code for one in release.errors] == ["PlaceholderDigest"]
    assert not release.valid

"""The key check's pure parts: the order of refusals, credit, and key material while it changes."""

from pathlib import Path

import pytest

from cloister_api.auth.api_keys import CachedApiKey, judge
from cloister_api.auth.token_bucket import RateLimit, consume
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError, ReloadingKeyMaterial
from cloister_crds.kinds import Organization


def organization(name: str = "acme", *, paid: bool = True, public: bool = False) -> Organization:
    return Organization.read(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {
                "namespace": f"org-{name}",
                "billing": {"tokenBilling": paid},
                "entitlements": {"publicInference": public},
            },
        }
    )


def held(**changes: object) -> CachedApiKey:
    key = CachedApiKey(
        1, b"i", "acme", "uid-acme", disabled=False, expires_at=None, max_tokens=None
    )
    for name, value in changes.items():
        setattr(key, name, value)
    return key


ACME = organization()
OTHER = organization("other")


@pytest.mark.spec("25.4")
@pytest.mark.parametrize(
    ("key", "own", "places", "status"),
    [
        (held(), ACME, (), 0),
        (held(), ACME, (ACME, ACME), 0),
        (held(), ACME, (OTHER,), 403),
        (held(), ACME, (ACME, OTHER), 403),
        (held(), ACME, (None,), 403),
        (held(), ACME, (organization("other", public=True),), 0),
        (held(), None, (), 401),
        (held(organization_id="uid-before"), ACME, (), 401),
        (held(disabled=True), ACME, (OTHER,), 401),
        (held(expires_at=100.0), ACME, (), 401),
        (held(expires_at=100.1), ACME, (), 0),
        (held(max_tokens=5, used=4), ACME, (), 0),
        (held(max_tokens=5, used=5), ACME, (), 402),
        (held(max_tokens=5, used=5), ACME, (OTHER,), 403),
        (held(), organization(paid=False), (), 402),
    ],
)
def test_a_key_is_judged_in_the_order_of_the_contract(
    key: CachedApiKey,
    own: Organization | None,
    places: tuple[Organization | None, ...],
    status: int,
) -> None:
    refused = judge(key, own, places, 100.0)
    assert (refused.status if refused else 0) == status


@pytest.mark.spec("25.4")
def test_the_reason_against_an_unknown_key_is_not_revealed() -> None:
    answers = {
        str(judge(key, own, (), 100.0))
        for key, own in ((held(), None), (held(disabled=True), ACME), (held(expires_at=1.0), ACME))
    }
    assert len(answers) == 1


def test_credit_grows_with_time_up_to_the_burst() -> None:
    key, rate = held(), RateLimit(per_second=2, burst=3)
    assert [consume(key, rate, 10.0) for _ in range(3)] == [0, 0, 0]
    assert consume(key, rate, 10.0) == pytest.approx(0.5)
    assert consume(key, rate, 10.25) == pytest.approx(0.25)
    assert consume(key, rate, 10.5) == 0
    assert [consume(key, rate, 1000.0) for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]


def test_a_rate_is_shared_by_the_replicas() -> None:
    whole = RateLimit(per_second=10, burst=6)
    assert whole.shared(3) == RateLimit(10 / 3, 2)
    assert whole.shared(100) == RateLimit(0.1, 1.0)
    assert whole.shared(0) == whole


def test_two_sealing_keys_live_while_one_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = KeyMaterial.create(path)
    sealed = first.seal("value", context="c")
    both = first.with_new_sealing_key()
    both.replace(path)
    assert KeyMaterial.read(path) == both
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]
    assert both.index("k") == first.index("k")
    assert both.unseal(sealed, context="c") == "value"
    again = both.resealed(sealed, context="c")
    assert again is not None
    assert both.resealed(again, context="c") is None
    last = both.without_previous()
    assert last.unseal(again, context="c") == "value"
    for material, text in ((last, sealed), (first, again)):
        with pytest.raises(MaterialError):
            material.unseal(text, context="c")
    with pytest.raises(MaterialError):
        last.resealed(sealed, context="c")


def test_a_running_process_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = KeyMaterial.create(path)
    followed = ReloadingKeyMaterial(path, first)
    sealed = followed.seal("value", context="c")
    both = first.with_new_sealing_key()
    both.replace(path)
    # What another process has sealed with the new key opens at once.
    assert followed.unseal(both.seal("late", context="c"), context="c") == "late"
    followed.reload()
    assert followed.unseal(sealed, context="c") == "value"
    assert both.resealed(followed.seal("new", context="c"), context="c") is None
    assert followed.index("k") == first.index("k")


def test_another_index_key_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first = KeyMaterial.create(path)
    followed = ReloadingKeyMaterial(path, first)
    path.unlink()
    with pytest.raises(MaterialError, match="No such file"):
        followed.reload()
    KeyMaterial.create(path)
    with pytest.raises(MaterialError, match="another index key"):
        followed.reload()
    assert followed.index("k") == first.index("k")


def test_a_key_material_file_that_cannot_be_replaced_has_a_remedy(tmp_path: Path) -> None:
    material = KeyMaterial.create(tmp_path / "keys.json")
    with pytest.raises(MaterialError, match="work on a copy"):
        material.replace(tmp_path / "none" / "keys.json")

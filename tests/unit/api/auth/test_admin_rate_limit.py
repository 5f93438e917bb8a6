"""How often an admin key may be used, by the clock."""

import pytest

from cloister_api.auth.admin_keys import AdminRateLimit, CallerRates
from cloister_api.auth.token_bucket import RateLimit
from cloister_api.errors import ApiError


def test_without_a_rate_limit_there_are_no_headers() -> None:
    assert AdminRateLimit(None).consume("k", 1, 0.0) == ()


def test_the_token_bucket_empties_and_refills() -> None:
    rates = AdminRateLimit(RateLimit(2.0, 4.0))
    left = [dict(rates.consume("k", 1, 10.0))["ratelimit"] for _ in range(4)]
    assert left == ['"key";r=3;t=1', '"key";r=2;t=1', '"key";r=1;t=2', '"key";r=0;t=2']
    with pytest.raises(ApiError) as refused:
        rates.consume("k", 1, 10.0)
    assert (refused.value.status, refused.value.code) == (429, "RATE_LIMITED")
    assert refused.value.retry_after == 1
    assert dict(refused.value.headers)["ratelimit-policy"] == '"key";q=4;w=2'
    assert dict(rates.consume("other", 1, 10.0))["ratelimit"] == '"key";r=3;t=1'
    assert dict(rates.consume("k", 1, 10.5))["ratelimit"] == '"key";r=0;t=2'


def test_replicas_share_the_rate() -> None:
    rates = AdminRateLimit(RateLimit(2.0, 4.0))
    assert dict(rates.consume("k", 2, 0.0))["ratelimit-policy"] == '"key";q=2;w=2'


def test_writes_of_an_organization_are_counted_apart_from_its_requests() -> None:
    rates = CallerRates(RateLimit(2.0, 4.0), RateLimit(1.0, 2.0))
    assert dict(rates.consume("k", None, 1, 0.0)) == {
        "ratelimit-policy": '"key";q=4;w=2',
        "ratelimit": '"key";r=3;t=1',
    }
    assert dict(rates.consume("k", "acme", 1, 0.0)) == {
        "ratelimit-policy": '"key";q=4;w=2, "writes";q=2;w=2',
        "ratelimit": '"key";r=2;t=1, "writes";r=1;t=1',
    }
    rates.consume("other key", "acme", 1, 0.0)
    with pytest.raises(ApiError) as refused:
        rates.consume("third key", "acme", 1, 0.0)
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert refused.value.message == "rate limit of writes exceeded; try again in 1 second"
    assert dict(refused.value.headers)["ratelimit"] == '"writes";r=0;t=2'
    assert rates.consume("third key", None, 1, 0.0), "reads go on"
    assert rates.consume("their key", "other", 1, 0.0), "so do the writes of others"

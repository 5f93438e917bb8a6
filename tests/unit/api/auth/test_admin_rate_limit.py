"""How often an admin key may be used, by the clock."""

import pytest

from cloister_api.auth.admin_rate_limit import AdminRateLimit
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

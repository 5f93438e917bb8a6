"""Orders of certificates that are no longer wanted, and those that a process cannot judge yet."""

from datetime import UTC, datetime, timedelta

import pytest
from typing_extensions import override

from cloister_api.cache import CachedEnclave
from cloister_api.certificates.queue import YOUNG, withdrawal
from cloister_api.certificates.request import PermittedNames
from cloister_api.ledger.certificates import CertificateOrder, OrderState

QUEUED = datetime(2026, 3, 1, tzinfo=UTC)
ORDER = CertificateOrder(
    id="1",
    enclave_uid="a",
    enclave="org-acme/web-a-1",
    request_digest="0" * 64,
    request="",
    names=("web.acme.containers.test",),
    state=OrderState.QUEUED,
    message="",
    failures=0,
    created_at=QUEUED,
    due_at=QUEUED,
    order_url=None,
    certificate=None,
    not_after=None,
)


class EmptyCache(PermittedNames):
    """What a process knows that has not seen the Enclave."""

    def __init__(self, *, ready: bool) -> None:
        self._filled = ready

    @property
    @override
    def ready(self) -> bool:
        return self._filled

    @override
    def live(self, uid: str) -> CachedEnclave | None:
        return None


@pytest.mark.parametrize(
    ("age", "ready", "told"),
    [
        (timedelta(0), True, ""),
        (YOUNG - timedelta(seconds=1), True, ""),
        (YOUNG, True, "the enclave was terminated"),
        (timedelta(days=1), True, "the enclave was terminated"),
        (timedelta(days=1), False, ""),
    ],
)
def test_an_order_of_an_unknown_enclave_is_refused_only_when_the_cache_must_have_it(
    age: timedelta, told: str, *, ready: bool
) -> None:
    assert withdrawal(ORDER, EmptyCache(ready=ready), QUEUED + age) == told

"""What the errors of an ACME authority mean for an order."""

import pytest
import requests
from acme import client, errors, messages

from cloister_api.certificates.account import NONCES, AcmeNetwork, forgotten


def answered(status: int) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    return response


@pytest.mark.parametrize("status", [404, 410])
def test_an_order_that_the_authority_no_longer_knows_is_sent_again(status: int) -> None:
    assert forgotten(errors.ClientError(answered(status)))


@pytest.mark.parametrize(
    "error",
    [
        errors.ClientError(answered(503)),
        errors.ClientError("no Link header"),
        requests.ConnectionError("refused"),
        errors.Error(),
    ],
)
def test_an_authority_that_is_away_knows_its_orders_later(error: Exception) -> None:
    assert not forgotten(error)


def test_refused_nonces_are_retried_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [messages.Error.with_code("badNonce")] * NONCES

    def post(*_: object, **__: object) -> requests.Response:
        if refusals:
            raise refusals.pop()
        return answered(200)

    monkeypatch.setattr(client.ClientNetwork, "post", post)
    network = AcmeNetwork(None)
    assert network.post("https://ca.example/order", None).status_code == 200
    refusals.extend([messages.Error.with_code("badNonce")] * (NONCES + 1))
    with pytest.raises(messages.Error, match="badNonce"):
        network.post("https://ca.example/order", None)
    refusals.extend([messages.Error.with_code("rateLimited")] * 2)
    with pytest.raises(messages.Error, match="rateLimited"):
        network.post("https://ca.example/order", None)
    assert len(refusals) == 1, "sent once"

"""Rate limits at the shim: the real Caddy and the real gate."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.guest_part import RunningPart
from tests.support.servers.key_gate import running_gate
from tests.support.servers.shim import RunningShim, running_shim
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.key_check import KeyCheck, running_key_check

LIES = {
    "X-Forwarded-For": "192.0.2.9",
    "X-Real-IP": "192.0.2.9",
    "Forwarded": "for=192.0.2.9",
    "X-Gate-Address": "192.0.2.9",
    "CF-Connecting-IP": "192.0.2.9",
}
SLOW = 0.001
"""A rate so low that only its burst matters in a test."""


@contextmanager
def limited(**fields: Any) -> Iterator[tuple[RunningShim, RunningPart, KeyCheck]]:
    """Run shim and gate with a rate limit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rate")))
        good = {name: Reply(200) for name in ("tk_a", "tk_b")}
        check = stack.enter_context(running_key_check(good))
        shim = stack.enter_context(running_shim(folder, **fields))
        api = check.base if shim.spec.authenticated else None
        gate = stack.enter_context(running_gate(folder, shim.spec, api))
        yield shim, gate, check


@pytest.mark.spec("29.16")
def test_a_rate_limit_is_per_address_of_a_connection() -> None:
    with limited(rate_limit=SLOW, rate_burst=3) as (shim, _, _):
        asked = [shim.request("/x", source="127.0.0.2", headers=LIES) for _ in range(4)]
        assert [each.status for each in asked] == [200, 200, 200, 429]
        refused = asked[-1]
        assert refused.data["error"]["type"] == "rate_limit_error"
        assert 1 / SLOW - 120 < int(refused.header("Retry-After") or 0) <= 1 / SLOW
        assert len(shim.upstream.targets) == 3
        assert shim.request("/x", source="127.0.0.3").status == 200
        reported = {"X-Forwarded-For": "127.0.0.3"}
        assert shim.request("/x", source="127.0.0.2", headers=reported).status == 429


@pytest.mark.spec("29.16")
def test_the_default_burst_of_a_rate_limit_is_one() -> None:
    with limited(rate_limit=SLOW) as (shim, _, _):
        assert [shim.request("/x", source="127.0.0.2").status for _ in range(2)] == [200, 429]


def test_responses_of_the_shim_itself_do_not_count_for_the_rate_limit() -> None:
    with limited(rate_limit=SLOW, paths=("/x",)) as (shim, _, _):
        for _ in range(3):
            assert shim.request("/other", source="127.0.0.2").status == 404
            preflight = shim.request(
                "/x", method="OPTIONS", source="127.0.0.2", headers={"Origin": "https://a.example"}
            )
            assert preflight.status == 204
        assert shim.request("/x", source="127.0.0.2").status == 200


@pytest.mark.spec("29.16")
def test_an_api_key_has_a_rate_limit_of_its_own() -> None:
    fields = {"authenticated": True, "authenticated_endpoints": ("/keyed",)}
    with limited(rate_limit=SLOW, rate_burst=2, **fields) as (shim, _, _):

        def ask(key: str, source: str, target: str = "/keyed") -> int:
            headers = {"Authorization": f"Bearer {key}"}
            return shim.request(target, source=source, headers=headers).status

        assert [ask("tk_a", f"127.0.0.{host}") for host in (2, 3, 4)] == [200, 200, 429]
        assert ask("tk_b", "127.0.0.2") == 200
        assert [ask(f"tk_{word}", "127.0.0.5") for word in "xyz"] == [401, 401, 401]
        assert ask("", "127.0.0.5", "/open") == 200, "refused keys count apart from requests"
        open_paths = [ask(f"tk_{word}", "127.0.0.6", "/open") for word in "xyz"]
        assert open_paths == [200, 200, 429]


def test_requests_without_a_key_keep_no_key_behind_the_same_address_out() -> None:
    with limited(rate_limit=SLOW, rate_burst=2, authenticated=True) as (shim, _, _):
        path = "/v1/chat/completions"
        without = [shim.request(path, source="127.0.0.2").status for _ in range(5)]
        assert without == [401, 401, 429, 429, 429]
        headers = {"Authorization": "Bearer tk_a"}
        assert shim.request(path, source="127.0.0.2", headers=headers).status == 200


def test_a_dead_gate_closes_all_paths_of_a_file_with_a_rate_limit() -> None:
    with limited(rate_limit=100.0, paths=("/x",)) as (shim, gate, _):
        assert shim.request("/x").status == 200
        gate.kill()
        assert shim.request("/x").status == 503
        assert shim.request("/other").status == 404
        gate.start()
        assert shim.request("/x").status == 200

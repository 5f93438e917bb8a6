"""The two engines that read the rules for guests: OPA, and regorus, which Kata's agent uses."""

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dev.cluster.binaries import binary
from tests.support.stand_ins.kata_runtime import Request

__all__ = ["ENGINES", "Engine", "by_opa", "by_regorus"]

Engine = Callable[[str, Sequence[Request]], list[bool]]
"""Judges requests one after the other, as the agent does: state carries over."""


def by_opa(policy: str, requests: Sequence[Request], *, v0: bool = False) -> list[bool]:
    """Judge by OPA, which reads the policy as version 1 of Rego or as version 0."""
    asked = {"policy": policy, "v0": v0, "requests": [_asked(each) for each in requests]}
    done = subprocess.run(
        [binary("rego-judge")], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)
    assert not [each["error"] for each in verdicts if "error" in each]
    return [each["allowed"] for each in verdicts]


def by_regorus(policy: str, requests: Sequence[Request]) -> list[bool]:
    """Judge by regorus, set up and asked as src/agent/policy of Kata does it."""
    regorus = pytest.importorskip("regorus", reason="regorus has no wheel for this machine")
    engine = regorus.Engine()
    engine.set_rego_v0(True)
    engine.add_policy("agent_policy", policy)
    state: dict[str, Any] = {"pstate": {}}
    engine.add_data(state)
    verdicts = []
    for each in requests:
        engine.set_input_json(json.dumps(each.input))
        answer = json.loads(engine.eval_query_as_json(f"data.agent_policy.{each.endpoint}"))
        value = answer["result"][0]["expressions"][0]["value"]
        if isinstance(value, dict):
            for operation in value["ops"]:
                _patch(state, operation)
            engine.clear_data()
            engine.add_data(state)
            value = value["allowed"]
        verdicts.append(value)
    return verdicts


def _asked(request: Request) -> dict[str, Any]:
    return {"endpoint": request.endpoint, "input": request.input}


def _patch(state: dict[str, Any], operation: dict[str, Any]) -> None:
    """Apply an operation of JSON Patch to the state, which is two levels deep."""
    _, top, name = operation["path"].split("/")
    if operation["op"] == "add":
        state[top][name] = operation["value"]
    else:
        assert operation["op"] == "remove"
        del state[top][name]


ENGINES: dict[str, Engine] = {"opa": by_opa, "regorus": by_regorus}
"""Engines by name."""

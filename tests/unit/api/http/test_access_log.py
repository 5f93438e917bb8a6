"""The facade's log: one line for a record, with the id of its request."""

import json
import logging
from collections.abc import Iterator

import pytest

from cloister_api.http.access_log import CURRENT_REQUEST, configure_logging, log_request
from cloister_clients.telemetry import LogFormat

FORGED = "x\n2026-11-25 00:00:00 CRITICAL root [-] forged\x1b[31m\u2028"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    libraries = {name: logging.getLogger(name).level for name in ("httpx", "stripe")}
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.usefixtures("root")
def test_a_foreign_text_stays_on_the_line_of_its_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("INFO")
    token = CURRENT_REQUEST.set("request-1")
    try:
        logging.getLogger("cloister").warning("ManifestInvalid: %s", FORGED)
    finally:
        CURRENT_REQUEST.reset(token)
    (line,) = capsys.readouterr().err.splitlines()
    assert " WARNING cloister [request-1] ManifestInvalid: x\\n2026-11-25" in line
    assert line.endswith(r"forged\x1b[31m\u2028")


@pytest.mark.usefixtures("root")
def test_a_json_line_has_the_keys_of_the_operators(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", LogFormat.JSON)
    identifier = "00000000-0000-4000-8000-000000000000"
    scope = {
        "method": "GET",
        "path": f"/api/containers/{identifier}",
        "state": {},
        "path_params": {"id": identifier},
    }
    token = CURRENT_REQUEST.set("request-1")
    try:
        log_request(scope, 200, 0.001)
    finally:
        CURRENT_REQUEST.reset(token)
    logging.getLogger("cloister").info("idle")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.keys() == {"time", "level", "logger", "message", "object", "request_id"}
    assert (first["object"], first["request_id"]) == (identifier, "request-1")
    assert second.keys() == {"time", "level", "logger", "message"}

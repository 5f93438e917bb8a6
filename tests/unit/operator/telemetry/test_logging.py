"""Both formats of the operator's log write one line for a record."""

import json
import logging
from collections.abc import Iterator

import pytest

from cloister_clients.telemetry import LogFormat
from cloister_operator.settings import LogSettings
from cloister_operator.telemetry.health import CURRENT_OBJECT, configure_logging

FORGED = "x\n2026-11-25 00:00:00 CRITICAL root forged\x1b[31m\u2028\x85"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_foreign_text_stays_on_the_line_of_its_record(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], form: LogFormat
) -> None:
    configure_logging(LogSettings(format=form))
    logging.getLogger("cloister").warning("ManifestInvalid: %s", FORGED)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    if form is LogFormat.JSON:
        assert json.loads(lines[0])["message"] == f"ManifestInvalid: {FORGED}"
    else:
        assert lines[0].endswith(r"forged\x1b[31m\u2028\x85")


def test_a_line_names_the_object_that_is_reconciled(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogSettings(format=LogFormat.JSON))
    token = CURRENT_OBJECT.set("Container org-acme/web")
    try:
        logging.getLogger("cloister").info("looked up")
    finally:
        CURRENT_OBJECT.reset(token)
    logging.getLogger("cloister").info("idle")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.keys() == {"time", "level", "logger", "message", "object"}
    assert first["object"] == "Container org-acme/web"
    assert second.keys() == {"time", "level", "logger", "message"}

"""A record is one line: what foreign servers sent cannot forge another one."""

import io
import logging

import pytest

from cloister_clients.telemetry import LineFormatter, escaped

FORGED = "x\n2026-11-25 00:00:00 CRITICAL root forged"
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(written: io.StringIO) -> logging.Logger:
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(FORMAT))
    logger = logging.getLogger(f"{__name__}.{id(written)}")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


@pytest.mark.parametrize(
    "character", ["\n", "\r", "\x0b", "\x0c", "\x1b", "\x00", "\x7f", "\x85", "\u2028", "\u202e"]
)
def test_a_character_that_acts_is_escaped(
    log: logging.Logger, written: io.StringIO, character: str
) -> None:
    log.info("image %s is no image", f"a{character}b")
    lines = written.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert "a\\" in lines[0]


def test_other_text_stays_as_it_is() -> None:
    text = 'Größe 5 € "quoted" \\n 日本 🙂'
    assert escaped(text) == text


def test_an_exception_cannot_forge_a_line(log: logging.Logger, written: io.StringIO) -> None:
    try:
        int(FORGED)
    except ValueError as error:
        error.add_note(FORGED)
        log.exception("failed: %s", FORGED)
    first, *below = written.getvalue().splitlines()
    assert first.endswith("failed: x\\n2026-11-25 00:00:00 CRITICAL root forged")
    assert len(below) > 2
    assert all(line.startswith("    ") for line in below)

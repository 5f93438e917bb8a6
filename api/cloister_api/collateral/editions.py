"""Which of two answers of a maker is newer. Pure.

A text compares as the edition does, in every database: whether the maker has signed the answer,
then two numbers. Of a revocation list these are the time of its issue and its number (Intel's has
the number 1 always), of Intel's JSON the number of the evaluation and the time: Intel goes on to
sign earlier evaluations for whoever requests them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from cryptography import x509
from typing_extensions import override

from cloister_api.collateral.makers import MOST_VALUES, UnusableAnswer
from cloister_clients.foreign_json import parse_json

__all__ = ["CollateralEdition"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGITS = 49
"""Those of the largest number that a revocation list may have, of 20 bytes."""


@dataclass(frozen=True, slots=True)
class CollateralEdition:
    """How new an answer is."""

    is_signed: bool
    """Whether the maker has signed it."""
    issued_at: datetime
    """When it was issued."""
    number: int
    """Number of a list, or of an evaluation."""
    is_list: bool
    """Whether it is a revocation list."""

    @classmethod
    def of(cls, form: str, body: bytes, *, is_signed: bool) -> Self:
        """Return the edition of an answer.

        Parameters
        ----------
        form
            As `CollateralPiece.form`; of an answer that has dates.
        body
            The answer.
        is_signed
            Whether the maker has signed it.

        Raises
        ------
        UnusableAnswer
            When it does not say when it was issued.
        """
        try:
            if form == "crl":
                found = x509.load_der_x509_crl(body)
                issued, number = found.last_update_utc, number_of(found)
            else:
                said: Mapping[str, Any] = parse_json(body, most=MOST_VALUES)[form]
                issued = datetime.fromisoformat(said["issueDate"])
                number = int(said["tcbEvaluationDataNumber"])
        except (KeyError, TypeError, ValueError) as error:
            raise UnusableAnswer(f"it is not a {form} of a known edition") from error
        if issued.tzinfo is None or issued < EPOCH or not 0 <= number < 10**DIGITS:
            raise UnusableAnswer("it does not say when it was issued")
        return cls(is_signed, issued.astimezone(UTC), number, form == "crl")

    @classmethod
    def read(cls, text: str, form: str) -> Self:
        """Return the edition that has a text.

        Parameters
        ----------
        text
            As `text`.
        form
            As `CollateralPiece.form`.
        """
        signed, first, second = (int(each) for each in text.split("."))
        is_list = form == "crl"
        seconds, number = (first, second) if is_list else (second, first)
        return cls(bool(signed), datetime.fromtimestamp(seconds, UTC), number, is_list)

    @property
    def text(self) -> str:
        """The edition, for comparison."""
        seconds = int(self.issued_at.timestamp())
        first, second = (seconds, self.number) if self.is_list else (self.number, seconds)
        return f"{self.is_signed:d}.{first:0{DIGITS}d}.{second:0{DIGITS}d}"

    @override
    def __str__(self) -> str:
        """Return the edition for people."""
        signed = "signed" if self.is_signed else "not signed by the maker"
        return f"number {self.number} of {self.issued_at:%Y-%m-%dT%H:%M:%SZ}, {signed}"


def number_of(found: x509.CertificateRevocationList) -> int:
    """Return the number of a revocation list; 0 = it has none."""
    try:
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0

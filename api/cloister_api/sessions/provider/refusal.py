"""Why a sign-in failed: a word for the address and the audit trail, and a sentence for people."""

from enum import StrEnum


class RefusalReason(StrEnum):
    """Why a sign-in failed."""

    BUSY = "busy"
    """Too many sign-ins are in progress."""
    DECLINED = "declined"
    """The provider did not sign the person in."""
    EMAIL_NOT_VERIFIED = "email-not-verified"
    """The provider does not say that the e-mail address is verified."""
    MISUNDERSTOOD = "misunderstood"
    """The provider's documents or responses are not what this client can work with."""
    NO_NAME = "no-name"
    """The provider does not send the claim that names the user."""
    NOT_BEGUN = "not-begun"
    """The sign-in was not begun in this browser."""
    NOT_RECENT = "not-recent"
    """The provider does not say that the person proved a short while ago who they are."""
    OTHER_PROVIDER = "other-provider"
    """The response came from another provider."""
    TOO_LATE = "too-late"
    """The sign-in was begun too long ago."""
    UNREACHABLE = "unreachable"
    """The provider does not respond."""
    UNTRUSTED = "untrusted"
    """The ID token is not accepted."""
    UNUSABLE_NAME = "unusable-name"
    """The claim cannot be the name of a user."""


LOGGED = "The operator of this installation finds the reason in the log of the API."
SENTENCES = {
    RefusalReason.BUSY: "Too many people sign in at this moment. Try again in a minute.",
    RefusalReason.DECLINED: "{name} did not sign you in, or you declined. Try again.",
    RefusalReason.EMAIL_NOT_VERIFIED: "{name} does not say that your e-mail address is verified, "
    "so that it could be somebody else's. Have it verified there, then try again.",
    RefusalReason.MISUNDERSTOOD: "{name} and this dashboard do not understand each other. "
    + LOGGED,
    RefusalReason.NO_NAME: "{name} does not say by which name you are known here. " + LOGGED,
    RefusalReason.NOT_BEGUN: "That sign-in was not begun in this browser, or another one was begun "
    "since. Begin it again here.",
    RefusalReason.NOT_RECENT: "{name} does not say that you signed in there a short while ago. "
    "Sign out there, then sign in again here.",
    RefusalReason.OTHER_PROVIDER: "The response did not come from {name}. Begin again here, and "
    "follow no link of others.",
    RefusalReason.TOO_LATE: "That sign-in took longer than ten minutes. Begin it again.",
    RefusalReason.UNREACHABLE: "{name} does not respond. Try again; if this persists, ask the "
    "operator of this installation.",
    RefusalReason.UNTRUSTED: "What {name} says of you cannot be trusted. " + LOGGED,
    RefusalReason.UNUSABLE_NAME: "{name} knows you by a name that no member of an organization can "
    "have: 1 to 253 characters without spaces or accents. Ask the operator of this installation.",
}
"""What each reason means, and what to do."""


class SignInRefused(Exception):  # noqa: N818 - says what happened
    """A sign-in failed."""

    def __init__(self, reason: RefusalReason, detail: str = "", *, subject: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        """Why, in a word."""
        self.detail = detail
        """For the log: what exactly; never a code, a token or a secret."""
        self.subject = subject
        """Whom the provider vouched for; empty means nobody, as far as was seen."""


def sentence(word: str, name: str) -> str:
    """Return what to tell people of a failed sign-in; empty if there is no such reason.

    Parameters
    ----------
    word
        The reason, as the address has it. Anybody may have written it.
    """
    found = next((text for reason, text in SENTENCES.items() if reason.value == word), "")
    return found.format(name=name)

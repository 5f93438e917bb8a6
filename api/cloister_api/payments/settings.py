"""Settings of the payment processor, and the secrets whose files they name."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from cloister_clients.settings import SettingsSection

KEY_PREFIXES = ("sk_", "rk_")
"""Prefixes of secret and restricted keys (Stripe, "API keys")."""
WEBHOOK_PREFIX = "whsec_"
"""Prefix of secrets of webhook endpoints (Stripe, "Webhooks")."""


def distinct(products: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list with duplicates.

    Raises
    ------
    ValueError
    When it has.
    """
    if len(set(products)) < len(products):
        raise ValueError("names a product twice; name each once")
    return products


Products = Annotated[
    tuple[Annotated[str, Field(pattern=r"^\S+$", max_length=253)], ...],
    Field(min_length=1, max_length=100),
    AfterValidator(distinct),
]
"""Identifiers of products of the payment processor, such as prod_containers."""


class StripeSettings(SettingsSection):
    """How Stripe is read, and what its products mean."""

    secret_key_file: Path
    """File with a secret key (sk_…) or, better, a restricted one (rk_…) that may read customers,
    subscriptions, invoices, charges and payment intents. Required."""
    webhook_secret_file: Path | None = None
    """File with the secret of the webhook endpoint (whsec_…); unset means webhooks are not
    accepted, and a change of a subscription is noticed at the next refresh."""
    container_products: Products
    """Products whose subscription is the container subscription. Required."""
    token_products: Products
    """Products whose subscription is token billing; one may be in both lists. Required."""
    api_address: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] = "https://api.stripe.com"
    """Base address of Stripe's API, without a path. Default https://api.stripe.com."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """How long one query may take with all its pages, in seconds. Default 10."""
    refresh_seconds: Annotated[float, Field(ge=1, le=86_400)] = 3_600.0
    """Seconds between two refreshes of all subscriptions, without webhooks. Default an hour."""

    def anchored(self, directory: Path) -> Self:
        """Return the settings with paths relative to a directory made absolute."""
        webhook = self.webhook_secret_file
        return self.model_copy(
            update={
                "secret_key_file": (directory / self.secret_key_file).absolute(),
                "webhook_secret_file": webhook and (directory / webhook).absolute(),
            }
        )


class PaymentsError(Exception):
    """A secret of the payment processor cannot be used; the message names file and remedy."""


@dataclass(frozen=True, slots=True)
class StripeSecrets:
    """The secrets in the files of the settings."""

    key: str = field(repr=False)
    """Secret or restricted key."""
    webhook: str | None = field(default=None, repr=False)
    """Secret of the webhook endpoint; None means webhooks are not accepted."""


def read_secrets(settings: StripeSettings) -> StripeSecrets:
    """Read the secrets.

    Raises
    ------
    PaymentsError
        When a file cannot be read or holds something else.
    """
    key = read_secret("stripe.secretKeyFile", settings.secret_key_file, KEY_PREFIXES)
    if settings.webhook_secret_file is None:
        return StripeSecrets(key)
    hook = read_secret("stripe.webhookSecretFile", settings.webhook_secret_file, (WEBHOOK_PREFIX,))
    return StripeSecrets(key, hook)


def read_secret(setting: str, path: Path, prefixes: tuple[str, ...]) -> str:
    """Read one secret; no error contains anything of the file.

    Raises
    ------
    PaymentsError
        When the file cannot be read or holds something else.
    """
    try:
        secret = path.read_bytes().strip().decode("ascii")
    except OSError as error:
        raise PaymentsError(f"{setting}: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PaymentsError(f"{setting}: {path} is not text; {remedy(prefixes)}") from error
    if not secret.startswith(prefixes) or len(secret.split()) != 1:
        raise PaymentsError(f"{setting}: {path} holds something else; {remedy(prefixes)}")
    return secret


def remedy(prefixes: tuple[str, ...]) -> str:
    """Describe what to write into a file."""
    return f"write the one line from Stripe's dashboard that begins with {' or '.join(prefixes)}"

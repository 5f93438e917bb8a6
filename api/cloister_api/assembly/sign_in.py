"""Builds the sign-in by the OpenID provider."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.ledger.keys.key_material import KeySealer

if TYPE_CHECKING:
    from cloister_api.sessions.provider.sign_in import ProviderSignIn

__all__ = ["open_sign_in"]


@contextlib.asynccontextmanager
async def open_sign_in(
    base: Infrastructure, material: KeySealer
) -> AsyncIterator["ProviderSignIn | None"]:
    """Build it, and close its connections at the end; None = the settings name no provider.

    Raises
    ------
    SettingsError
        When the authorities of the settings cannot be read.
    """
    dashboard = base.settings.dashboard
    if dashboard is None or dashboard.oidc is None:
        yield None
        return
    from cloister_api.sessions.provider.client import (  # noqa: PLC0415 - where it is needed
        ProviderClient,
    )
    from cloister_api.sessions.provider.sign_in import (  # noqa: PLC0415 - imports PyJWT
        ProviderSignIn,
    )

    client = ProviderClient(dashboard.oidc, base.clock)
    try:
        yield ProviderSignIn(dashboard.oidc, dashboard.address, client, material, base.clock)
    finally:
        await client.aclose()

"""Sign-in by an OpenID provider: code flow with PKCE, bound to the browser that began it.

Sources: OpenID Connect Core 1.0 and Discovery 1.0, RFC 6749, 7636 and 9207. Everything is checked
by pure functions; only `client` sends requests to the provider.
"""

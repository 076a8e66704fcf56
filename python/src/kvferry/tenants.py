"""Tenants: agents keep chunks of requests with different cache salts apart."""

from __future__ import annotations

import hashlib

# The first hex digits of the digest of a salt, which are the tenant; and the tag of a key that names it.
_DIGITS = 16
_TAG = "@kvft%"


def tenant_of_salt(salt: str) -> str:
    """Return the tenant of the requests with a cache salt, as `kvferry tenant` prints it; empty without a salt.

    The tenant is a digest, so whoever sees a key does not learn a salt that cannot be guessed.
    """
    if not salt:
        return ""
    digits = hashlib.sha256(salt.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return digits if digits.strip("0") else f"{1:0{_DIGITS}x}"


def add_tenant(key: str, tenant: str) -> str:
    """Return the name of a chunk of a tenant. The tag is the last part of the name; the default tenant has none."""
    return f"{key}{_TAG}{tenant}" if tenant else key

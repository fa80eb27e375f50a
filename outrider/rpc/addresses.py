"""Lists of addresses, as flags and variables write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

DNS_PREFIX = "dns:"
"""Before NAME:PORT, which stands for every address that the name has."""


def _split(value: object) -> object:
    """Flags and variables write a list as "a:1, b:2"."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _checked(addresses: tuple[str, ...]) -> tuple[str, ...]:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host.removeprefix(DNS_PREFIX) or not port.isdigit() or not 0 < int(port) <= 65535:
            raise ValueError(f"{address!r} is no address; write host:port, such as 127.0.0.1:50052")
    if len(set(addresses)) != len(addresses):
        raise ValueError("an address is named twice; name each one once")
    return addresses


Addresses = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_checked)]
"""host:port, comma-separated; each one once."""

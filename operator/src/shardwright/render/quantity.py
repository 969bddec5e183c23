"""Quantities as Kubernetes prints them, so that what is applied equals what is read back.

Decides the canonical text of an amount. Never rounds: an amount that has no short form is written in its base
unit.
"""

_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def cpu(millis: int) -> str:
    """Return CPU: "8" for whole cores, "1500m" otherwise."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def binary(amount_bytes: int) -> str:
    """Return bytes with the largest binary suffix that divides them: "64Gi", "1536Mi", "1000"."""
    for suffix, size in _BINARY:
        if amount_bytes and amount_bytes % size == 0:
            return f"{amount_bytes // size}{suffix}"
    return str(amount_bytes)

"""Where built programs and running clusters live on disk, and the locks around them.

It decides paths only. It never deletes anything: a cache that a user may share between checkouts is theirs.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache_dir() -> Path:
    """Give the cache directory: `$SHARDWRIGHT_CACHE`, else the user's cache directory."""
    explicit = os.environ.get("SHARDWRIGHT_CACHE")
    if explicit:
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shardwright"


@contextlib.contextmanager
def file_lock(name: str) -> Iterator[None]:
    """Hold a lock between processes. The kernel frees it when its holder dies, so none is ever stale."""
    directory = cache_dir() / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

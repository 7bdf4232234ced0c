"""The user's cache folder, for files that are fetched or made once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_root() -> Path:
    """$PERSEID_CACHE, else $XDG_CACHE_HOME/perseid, else ~/.cache/perseid. Absolute."""
    own = os.environ.get("PERSEID_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return root.absolute() / "perseid"


def short_digest(data: str | bytes) -> str:
    """A name made from content: 16 digits of its SHA-256."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]

"""Where what is fetched or made once for a user lies."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """$PERSEID_CACHE, else $XDG_CACHE_HOME/perseid, else ~/.cache/perseid. Absolute."""
    own = os.environ.get("PERSEID_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return root.absolute() / "perseid"

"""Properties here have no time limit per example: a busy machine is no defect of theirs."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

"""The folder of an audit that this command runs: it stays if the audit is interrupted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.cli import output
from perseid.errors import PermanentError

if TYPE_CHECKING:
    from perseid.replay.progress import Progress

TEMPORARY = "temporary"  # in what is asked for: the folder was not named


@contextmanager
def kept(asked: Mapping[str, Any], folder: Path | None, resume: Path | None) -> Iterator[Progress]:
    """The progress of the audit: a new one in `folder`, or the one that `resume` has.

    `asked`: options as they were typed. At the end nothing of it stays but what is in `folder`; so
    it is if a new audit cannot end. RefusedError if the folder has another audit.
    """
    with closing(_opened(asked, folder, resume)) as progress:
        again = f"perseid replay {progress.asked['job']} --resume {progress.folder}"
        output.note(f"if it is interrupted, `{again}` resumes it")
        try:
            yield progress
        except BaseException as error:
            if resume is not None or not isinstance(error, PermanentError):
                output.note(f"the audit was interrupted: `{again}` resumes it")
                raise
            _delete(progress)
            raise
        _delete(progress)


def _opened(asked: Mapping[str, Any], folder: Path | None, resume: Path | None) -> Progress:
    from perseid.replay.progress import Progress

    if resume is None:
        made = folder if folder is not None else Path(tempfile.mkdtemp(prefix="perseid-replay-"))
        made.mkdir(parents=True, exist_ok=True)
        return Progress.begun(made.resolve(), {**asked, TEMPORARY: folder is None})
    progress = Progress.resumed(resume.resolve())
    try:
        progress.refuse_other(asked)
    except BaseException:
        progress.close()
        raise
    return progress


def _delete(progress: Progress) -> None:
    if progress.asked[TEMPORARY]:
        shutil.rmtree(progress.folder, ignore_errors=True)
    else:
        progress.remove()

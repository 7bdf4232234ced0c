"""The followed repository as a bare copy: fetched, verified and read, never checked out.

The whole history is fetched, so that a rewritten ref is detected. The copy holds only what the
server has: when it is damaged, it is deleted.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from perseid.errors import BadInputError, PerseidError, RetryableError
from perseid.jobs.following.deciding import Found, Seen
from perseid.jobs.following.settings import Settings
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.model.trees import JobTree, archive
from perseid.jobs.repository import git, job_folders

_REF = "refs/perseid/followed"
_SUBMODULE = "160000"
# Only ssh signatures count: gpg's verdict depends on a keyring that no setting here controls.
_VERIFY = (
    "-c", "gpg.format=ssh", "-c", "gpg.minTrustLevel=fully", "-c", "gpg.program=/bin/false",
    "-c", "gpg.openpgp.program=/bin/false", "-c", "gpg.x509.program=/bin/false",
)  # fmt: skip


class Remote:
    """One repository and its copy in `folder`, which no other process uses."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self.copy = folder

    def look(self, before: str) -> Seen:
        """Fetches the ref and resolves it once; `before`: the last accepted commit.

        Raises:
            BadInputError: there is no such ref, or git does not accept what the server sends.
            RetryableError: the server does not answer, or refuses access.
        """
        try:
            self._fetch()
            commit = git.commit_of(self.copy, _REF)
        except PerseidError:
            shutil.rmtree(self.copy, ignore_errors=True)
            raise
        unsigned = None if self._settings.signers is None else self._signature_fault(commit)
        return Seen(commit, unsigned, not before or self._follows(before, commit))

    def found(self, commit: str) -> list[Found]:
        """The job folders of a commit; none of their code is run.

        Raises BadInputError when it has none, or too many.
        """
        try:
            return self._found(commit)
        except PerseidError:
            shutil.rmtree(self.copy, ignore_errors=True)
            raise

    def _found(self, commit: str) -> list[Found]:
        trees = job_folders.commit_trees(
            self.copy, commit, self._settings.folder, self._settings.url
        )
        found = [_judged(name, tree) for name, tree in trees.items()]
        found += [
            Found(blob.path, blob.id, "", f"{blob.path}: is a submodule, which is not fetched; "
                  "put the files themselves there")
            for blob in git.entries(self.copy, commit, self._settings.folder)
            if blob.mode == _SUBMODULE and "/" not in blob.path
        ]  # fmt: skip
        return found

    def _fetch(self) -> None:
        ref = self._settings.ref
        full = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
        if not (self.copy / "HEAD").is_file():
            self.copy.mkdir(parents=True, exist_ok=True)
            git.run(self.copy, ["init", "--quiet", "--bare", "--template="])
        fetch = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
                 "--no-write-fetch-head", "--end-of-options", self._settings.url,
                 f"+{full}:{_REF}"]  # fmt: skip
        try:
            git.run(self.copy, fetch, access=self._settings.access, url=self._settings.url)
        except git.GitFailed as error:
            if "couldn't find remote ref" in error.stderr:
                raise BadInputError(f"{self._settings.url} has no {full}") from None
            if "fsck error" in error.stderr:
                raise BadInputError(f"git does not accept what the server sends: {error}") from None
            raise RetryableError(str(error)) from None

    def _follows(self, before: str, commit: str) -> bool:
        try:
            git.run(self.copy, ["merge-base", "--is-ancestor", before, commit])
        except git.GitFailed:
            return False  # also when `before` is no longer in any history
        return True

    def _signature_fault(self, commit: str) -> str | None:
        signers = ("-c", f"gpg.ssh.allowedSignersFile={self._settings.signers}")
        try:
            git.run(self.copy, [*_VERIFY, *signers, "verify-commit", commit])
        except git.GitFailed as error:
            return error.stderr.splitlines()[0][:200] if error.stderr else "it is not signed"
        return None


def _judged(name: str, tree: JobTree | BadInputError) -> Found:
    if not isinstance(tree, JobTree):
        return Found(name, "", "", str(tree))
    digest = hashlib.sha256(archive(tree.files)).hexdigest()
    try:
        with job_folders.validated([tree]) as (job,):
            return Found(name, digest, job.spec.name)
    except (JobFileErrors, JobFileRefused) as error:
        return Found(name, digest, "", str(error))

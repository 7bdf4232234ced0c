"""The error tree of perseid, sorted by what the code that catches an error must do.

    PerseidError
      RetryableError          retry, nothing is lost: a client timed out, a broker is unavailable
        ProcessDied           a process that computed an epoch was killed, or crashed natively
        UnexpectedError       code or data raised an untyped error: a few attempts, then stop
        TransientAnswer       a broker's answer may change: final when repeated (`settling`)
          UndecidedTransaction  likewise, of readers that wait for a transaction's end
      FencedError             stop at once: a newer owner exists
      PermanentError          stop the job and report to the user: a retry gives the same error
        BadInputError         a record, or a file of the user, is not what was declared
        UsageError            a command or a setting is wrong          (exit code 2)
        RefusedError          understood, and not done                 (exit code 3)
        ReplayDataLost        the source no longer holds what a replay needs
        InputChanged          a replay reads other records than the first run did
        LogTruncated          a partition was cut below an offset that was reached
        TopicIdentityChanged  a topic was deleted and created again under a running job
        LedgerGap             an epoch would be committed while the previous one is missing
        DamagedFile           a checksum or an identity does not match
        Diverged              a replica has made other outputs than its primary

A message names the problem, the place, what was expected and what to do next, because only its text
gets from a Spark executor to the driver (`carried`). `texts` cuts it to size.
"""

from __future__ import annotations


class PerseidError(Exception):
    """Base of all errors of perseid."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class RetryableError(PerseidError):
    """A transient fault of a client, a broker or a file system; the same call may succeed later."""


class ProcessDied(RetryableError):
    """A process that computed an epoch has died. The same records may kill the next one."""


class UnexpectedError(RetryableError):
    """An exception outside this tree that is not about a lost process or service.

    It comes from code or data, so it is likely to repeat. The coordinator counts the attempts.
    """


class TransientAnswer(RetryableError):
    """The broker does not know a topic, or denies access; the answer may soon change.

    Repeated answers become final by `perseid.errors.settling`.
    """


class UndecidedTransaction(TransientAnswer):
    """A broker makes readers wait for a transaction that has not ended."""


class FencedError(PerseidError):
    """A newer generation owns what this process was about to write."""


class PermanentError(PerseidError):
    """The same input and code would fail again; a user has to change something."""


class BadInputError(PermanentError):
    """A record or a user's file is not what was declared."""


class UsageError(PermanentError):
    """A command line, option or setting is wrong."""


class RefusedError(PermanentError):
    """The request was understood and is refused; the message names what to type instead."""


class ReplayDataLost(PermanentError):
    """Retention removed records that a replay needs."""

    def __init__(self, topic: str, partition: int, needed: int, earliest: int) -> None:
        self.topic, self.partition, self.needed, self.earliest = topic, partition, needed, earliest
        super().__init__(topic, partition, needed, earliest)

    def __str__(self) -> str:
        return (
            f"ReplayDataLost({self.topic}, {self.partition}, needed={self.needed}, "
            f"earliest={self.earliest}): retention removed records that the replay needs; raise "
            "the topic's retention above the checkpoint age, or start over with "
            "`perseid jobs start JOB --from scratch`"
        )


class InputChanged(PermanentError):
    """A replay reads other records than the token log's checks have of the first run."""


class LogTruncated(PermanentError):
    """A partition was cut below an offset that was reached in it: records are lost."""

    def __init__(self, topic: str, partition: int, needed: int, end: int) -> None:
        self.topic, self.partition, self.needed, self.end = topic, partition, needed, end
        super().__init__(topic, partition, needed, end)

    def __str__(self) -> str:
        return (
            f"LogTruncated({self.topic}, {self.partition}, needed={self.needed}, end={self.end}): "
            "the log was cut below an offset that was reached before: the topic was deleted and "
            "created again, or the broker has lost records that it had acknowledged; restore the "
            "broker's log, or start over with `perseid jobs start JOB --from scratch`"
        )


class TopicIdentityChanged(PermanentError):
    """A topic has another UUID than the one that a token recorded: it was created again."""

    def __init__(self, topic: str, expected: str, found: str) -> None:
        self.topic, self.expected, self.found = topic, expected, found
        super().__init__(topic, expected, found)

    def __str__(self) -> str:
        return (
            f"TopicIdentityChanged({self.topic}, expected={self.expected}, found={self.found}): "
            "the topic was deleted and created again, so its offsets name other records; remove "
            "the job and apply it again to read the new topic from its start"
        )


class LedgerGap(PermanentError):
    """The ledger of a partition lacks an epoch below the one to be committed."""


class DamagedFile(PermanentError):
    """A file's checksum, length or identity does not match its content."""


class Diverged(PermanentError):
    """A replica has made other outputs of an epoch than its primary has committed."""


def lost_by_broker(what: str) -> PermanentError:
    """The error for lost acknowledged records; `what` describes where the loss was found."""
    return PermanentError(
        f"{what}: the topic was deleted and created again, or the broker has lost records that it "
        "had acknowledged. Nothing is written in their place, because the sink topics may hold "
        "what came of them: restore the broker's logs and start the job again, or start it `--from "
        "scratch` into new sink topics"
    )


def exit_code(error: PerseidError) -> int:
    """The exit code for `error`, the same in every process."""
    if isinstance(error, UsageError):
        return 2
    if isinstance(error, RefusedError):
        return 3
    return 1

"""ZooKeeper's entries of a deployment, as frozen dataclasses, and the deployment's settings."""

from perseid.records.deployment import Deployment
from perseid.records.entries import (
    MAIN,
    PAIR,
    PRIMARY,
    REPLICA,
    WHOLE,
    Assignment,
    BackupMark,
    BackupMarks,
    CheckpointPointer,
    CheckpointPointers,
    CoordinatorInfo,
    JobEntry,
    JobFailures,
    JobStatus,
    LeaderInfo,
    Plan,
    WorkerInfo,
)
from perseid.records.parts import PartFile

__all__ = [
    "MAIN",
    "PAIR",
    "PRIMARY",
    "REPLICA",
    "WHOLE",
    "Assignment",
    "BackupMark",
    "BackupMarks",
    "CheckpointPointer",
    "CheckpointPointers",
    "CoordinatorInfo",
    "Deployment",
    "JobEntry",
    "JobFailures",
    "JobStatus",
    "LeaderInfo",
    "PartFile",
    "Plan",
    "WorkerInfo",
]

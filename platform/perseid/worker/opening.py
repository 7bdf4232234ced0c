"""Opens a revision for a fragment: its files, its packages, and the context of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.jobs.environments import activating, own_code
from perseid.jobs.environments.installing import Environments
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.trees import open_archive
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.epoch import flow

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from perseid.records import Deployment, Plan


def context_of(
    plan: Plan, deployment: Deployment, lanes: int, cache: Path, held: ExitStack, *,
    incarnation: str, token: str, outputs: str = "",
) -> FragmentContext:  # fmt: skip
    """The context of the plan's only fragment; its packages are in use until `held` is closed.

    `cache`: where archives are unpacked. `lanes`, `token`, `outputs`: as in FragmentContext.
    """
    folder = open_archive(deployment.store, plan.archive, cache)
    spec = flow.spec_of(folder)
    if not deployment.jobs_allow_code:
        own_code.refuse(spec, folder)
    packages = held.enter_context(Environments.of(deployment).lease(folder))
    activating.use(folder, packages)
    own, layout = plan.only, layouts.build(spec, plan.layout)
    return FragmentContext(
        deployment=deployment,
        job=plan.job,
        job_uuid=plan.job_uuid,
        generation=plan.generation,
        incarnation=incarnation,
        revision=plan.revision,
        archive=plan.archive,
        folder=str(folder),
        layout=layout.part(own.gids),
        base_epoch=plan.base_epoch,
        lanes=lanes,
        one_task_each=graph.build(spec, layout).has_late_sql,
        rescaled=plan.rescaled,
        environment=str(packages or ""),
        fragment=own.fragment,
        split=own.split,
        log=own.log,
        outputs=outputs,
        token=token,
    )

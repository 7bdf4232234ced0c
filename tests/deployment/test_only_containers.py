"""What only containers can have: no network, a full disk, another Spark, Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from perseid.testing.compose import WORKERS, ComposeStack
from perseid.testing.wait import until

pytestmark = [pytest.mark.containers, pytest.mark.drawn(group="containers")]
MONITORING = Path(__file__).parents[2] / "compose" / "monitoring"
RECORDS, RATE = 60_000, 4_000
FILL = "dd if=/dev/zero of=/var/lib/perseid/store/filler bs=1M || true"


def test_a_paused_worker_and_one_without_network(deployed: Any, containers: ComposeStack) -> None:
    with deployed.fed(RECORDS, RATE):
        for stop, start in (
            (containers.pause, containers.resume), (containers.disconnect, containers.connect),
        ):  # fmt: skip
            deployed.at_work()
            name = deployed.worker()
            stop(name)
            deployed.wait_another(name)
            deployed.at_work()
            start(name)
            containers.wait_healthy(name)
    deployed.judge()


def test_a_full_store_delays_checkpoints_and_nothing_else(
    deployed: Any, containers: ComposeStack
) -> None:
    with deployed.fed(RECORDS, RECORDS / 45):  # until a checkpoint would have been due again
        deployed.at_work()
        containers.execute("worker-1", "sh", "-c", FILL)
        full = deployed.checkpoint()
        deployed.at_work(epochs=20)
        containers.execute("worker-1", "rm", "/var/lib/perseid/store/filler")
        until(lambda: deployed.checkpoint() > full, 120, "a checkpoint once there is space")
    deployed.judge()


def test_every_expression_of_dashboard_and_alarms_gives_what_it_should(
    deployed: Any, containers: ComposeStack
) -> None:
    containers.up("prometheus", healthy=False)
    dashboard = json.loads((MONITORING / "grafana" / "perseid.json").read_text())
    drawn = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = YAML(typ="safe").load(MONITORING / "alerts.yml")["groups"][0]["rules"]
    with deployed.fed(RECORDS // 2, RATE):
        for expression in drawn:
            until(partial(query, containers, expression), 90, f"data of {expression}")
    assert len(drawn) > 15
    for rule in rules:  # nothing is wrong, so no alarm; each expression is one that can be asked
        assert query(containers, rule["expr"]) == [], rule["alert"]
    known = {rule["name"] for rule in asked(containers, "rules")["groups"][0]["rules"]}
    assert known == {rule["alert"] for rule in rules}
    deployed.judge()


def test_the_same_job_continues_on_a_spark_cluster(deployed: Any, containers: ComposeStack) -> None:
    containers.up("spark-master", "spark-executor", healthy=False)
    containers.change(PERSEID_MASTER="spark://spark-master:7077")
    containers.up(*WORKERS)
    with deployed.fed(RECORDS // 4, RECORDS / 4 / 30):  # epochs continue after the restore
        deployed.at_work()
    deployed.judge()
    masters = {w["id"]: w for w in containers.do("status")["workers"]}
    assert masters and all(w["state"] == "live" for w in masters.values())


def query(containers: ComposeStack, expression: str) -> list[Any]:
    found: list[Any] = asked(containers, "query", query=expression)["result"]
    return found


def asked(containers: ComposeStack, what: str, **parameters: str) -> Any:
    port = containers.ports["prometheus"]
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except (ConnectionError, urllib.error.URLError) as error:
        if isinstance(error, urllib.error.HTTPError):
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return {"result": []}  # Prometheus is starting

"""What every service of compose.yaml must have, and what its files name of each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from perseid.coordinator.api.metrics import FAMILIES
from perseid.embedded.jars import KAFKA
from perseid.records import Deployment

COMPOSE = Path(__file__).parents[3] / "compose"
SERVICES: dict[str, Any] = YAML(typ="safe").load(COMPOSE / "compose.yaml")["services"]
LOCKS = Path(__file__).parents[3] / "platform"
ONCE = {"access"}  # ends when it has done its work
UNWATCHED = {
    *ONCE,
    "follower",
    "spark-executor",
    "prometheus",
    "grafana",
}  # no service waits for them


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_limited_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["mem_limit"] and service["pids_limit"]
    assert service["cpus"] == 0 or re.fullmatch(r"\$\{PERSEID_[A-Z]+_CPUS:-0\}", service["cpus"])
    assert service["image"].startswith("${PERSEID_IMAGES:-}")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    watched = service.get("healthcheck", {"disable": True}).get("disable") is None
    assert watched == (name not in UNWATCHED)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_alone(name: str) -> None:
    assert all(port.startswith("127.0.0.1:$") for port in SERVICES[name].get("ports", ()))


def test_perseids_containers_write_nowhere_but_to_volumes_and_have_a_user() -> None:
    own = [s for s in SERVICES.values() if "}perseid:" in s["image"]]
    assert len(own) == 8
    assert all(s["read_only"] and s["user"] == "10001:10001" for s in own)


def test_the_settings_are_a_deployment() -> None:
    settings = Deployment.model_validate_json((COMPOSE / "deployment.json").read_text())
    assert settings.kafka.split(":")[0] in SERVICES
    assert settings.zookeeper.split(":")[0] in SERVICES


def test_images_have_the_versions_of_the_locks() -> None:
    assert SERVICES["kafka"]["image"].endswith(f"apache/kafka:{KAFKA[2]}")
    script = (COMPOSE / "build-offline").read_text()
    for name, service in SERVICES.items():
        image = service["image"].removeprefix("${PERSEID_IMAGES:-}")
        assert name == "grafana" or "}perseid:" in service["image"] or f" {image}\n" in script


@pytest.mark.parametrize("name", ["runtime.lock", "build.lock"])
def test_the_images_packages_are_those_of_the_lock(name: str) -> None:
    whole = pinned(LOCKS / "requirements.lock")
    part = pinned(LOCKS / name)
    assert part and part <= whole


def pinned(path: Path) -> set[str]:
    return {line.split(" ")[0] for line in path.read_text().splitlines() if re.match(r"^\w", line)}


def test_dashboard_and_alarms_ask_for_metrics_that_there_are() -> None:
    dashboard = json.loads((COMPOSE / "monitoring" / "grafana" / "perseid.json").read_text())
    rules = YAML(typ="safe").load(COMPOSE / "monitoring" / "alerts.yml")["groups"][0]["rules"]
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    asked += [rule["expr"] for rule in rules]
    known = {family.name for family in FAMILIES}
    for expression in asked:
        for metric in re.findall(r"perseid_\w+", expression):
            assert metric.removesuffix("_bucket") in known, expression
    drawn = {m.removesuffix("_bucket") for e in asked for m in re.findall(r"perseid_\w+", e)}
    assert len(drawn) > len(known) / 2


def test_the_operators_page_has_a_remedy_for_each_alarm() -> None:
    rules = YAML(typ="safe").load(COMPOSE / "monitoring" / "alerts.yml")["groups"][0]["rules"]
    page = (COMPOSE / "OPERATIONS.md").read_text()
    assert set(re.findall(r"^\| `(Perseid\w+)` \|", page, re.M)) == {r["alert"] for r in rules}

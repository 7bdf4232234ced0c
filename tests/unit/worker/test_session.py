"""How executors find the driver, by the master's address."""

from __future__ import annotations

import socket

import pytest

from perseid.worker.spark.session import driver_host


@pytest.mark.parametrize(
    "master", ["local[2]", "local[2,4]", "spark://127.0.0.1:7077", "spark://localhost:7077",
               "spark://[::1]:7077"]
)  # fmt: skip
def test_a_master_on_this_machine_needs_no_other_address(master: str) -> None:
    assert driver_host(master) == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://spark-master:7077", "k8s://https://k:443", "yarn"])
def test_executors_elsewhere_reach_the_driver_by_this_machines_name(master: str) -> None:
    assert driver_host(master) == socket.gethostname()

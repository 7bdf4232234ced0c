"""`perseid demo` as a user types it, on the warm cluster: what it reports and how it ends."""

from __future__ import annotations

from perseid.testing.running import RunningCluster

DEMO_S = 280.0


def test_demo_survives_the_loss_of_worker_and_leader(running: RunningCluster) -> None:
    kills = ("--kill", "worker", "--kill", "coordinator")
    ran = running.run(
        "demo", "--records", "20000", "--rate", "1000", "--seed", "7", *kills, timeout_s=DEMO_S
    )
    assert ran.code == 0, ran.stderr
    found = ran.document
    # The demo leaves its job, stopped, to be looked at.
    jobs = {row["name"]: row["state"] for row in running.do("jobs", "list")["jobs"]}
    assert jobs[found["job"]] == "stopped"
    running.do("jobs", "remove", found["job"], "--purge")
    assert (found["records"], found["seed"]) == (20_000, 7)
    assert {found[k] for k in ("lost", "duplicated", "reordered", "wrong")} == {0}
    assert [kill["what"] for kill in found["kills"]] == ["worker", "coordinator"]
    for kill in found["kills"]:
        assert kill["pid"]
        assert kill["epoch_in_flight"]
        assert kill["seconds_to_output"] > 0
    assert found["kills"][0]["owner_before"] != found["kills"][0]["owner_after"]
    assert found["epochs_after_last_kill"] >= 20


def test_a_role_can_be_paused(running: RunningCluster) -> None:
    paused = running.do("chaos", "pause", "coordinator", "--for", "1s")
    assert paused["what"] in {"c1", "c2"}
    assert paused["pids"]


def test_demo_refuses_kills_that_cannot_be(running: RunningCluster) -> None:
    for kill, hint in (("executor", "--master standalone"), ("worker@soon", "seconds")):
        ran = running.run("demo", "--kill", kill)
        assert ran.code == 2
        assert hint in ran.document["error"]["message"]

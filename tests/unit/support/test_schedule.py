"""The faults of a simulated seed as a schedule for real servers."""

from support.schedule import Strike, strikes, worst

TRACE = """\
    0.440 c1.1 main: KILLED at after append to tokens
    1.601 c1.2 main: token of epoch 1
    4.500 -: CUT both of w3-1 and kafka for 12.0 s
    5.000 -: CUT requests of w1-1 and zookeeper for 1.0 s
    6.213 w1-1 g1: fragment ends: RetryableError: read: no answer, the way is cut
    7.646 w2-1 totals-4@5: KILLED with its worker at after flush
    8.000 w1-1 g3: PAUSED for 3.0 s at before commit
    9.250 w2-1 totals-4@5: POWER FAILURE of its host at after flush
   12.080 w1-1 totals-3@9: TASK KILLED at after commit
"""


def test_strikes_are_read_from_the_trace_in_order() -> None:
    assert strikes(TRACE.splitlines()) == [
        Strike(0.44, "kill", "leader"),
        Strike(4.5, "both", "kafka", 12.0),
        Strike(5.0, "requests", "zookeeper", 1.0),
        Strike(7.646, "kill", "worker"),
        Strike(8.0, "pause", "worker", 3.0),
        Strike(9.25, "kill", "worker"),
        Strike(12.08, "kill-task", "worker"),
    ]


def test_the_worst_seeds_come_first() -> None:
    found = worst(range(2000, 2012), 3)
    counts = [len(schedule) for _, schedule in found]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 3

"""A heap of (time, sequence, callback), one random generator, and processes that take turns.

A process is a greenlet: it runs until it sleeps, waits or ends, and an event of the heap resumes
it. So blocking code runs unchanged, and a seed always gives the same history.

A process belongs to a group, which models a machine or an operating system process: a group is
killed or paused as a whole. A killed process gets `Killed` at its current wait, and nothing that it
does afterwards has an effect.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

from greenlet import getcurrent, greenlet

START_S = 1_000.0
WALL_S = 1_767_225_600  # the correct wall clock minus the monotonic clock: the year 2026


class Killed(BaseException):
    """Ends the process. Not an Exception: only the engine may handle it."""


class Defect(AssertionError):
    """An invariant is violated."""


class Reported(Exception):
    """Data is lost that could not be kept, and the job reports it: a legitimate end."""


class Group:
    """Processes that die and pause together. The scheduler calls `on_death` once."""

    def __init__(self, name: str, on_death: Callable[[], None] | None = None) -> None:
        self.name = name
        self.processes: list[Process] = []
        self.dead = False
        self.paused_until_s = 0.0
        self.on_death = on_death


class Process:
    """One thread of control; `Simulation.spawn` makes it."""

    __slots__ = ("group", "killed", "marks", "name", "turns", "work")

    def __init__(
        self, group: Group, name: str, work: Callable[[], None], scheduler: greenlet
    ) -> None:
        self.group, self.name, self.work = group, name, work
        self.killed = False
        self.marks: dict[str, Any] = {}  # what faults need to know about it
        self.turns: greenlet | None = greenlet(self._run, scheduler)  # None: it has ended

    def _run(self) -> None:
        try:
            self.work()
        except Killed:
            return


class Signal:
    """A condition to wait for; `set` wakes all waiting processes."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._waiting: list[Process] = []
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        for process in self._waiting:
            self._simulation.wake(process, 0.0)
        self._waiting = []

    def wait(self) -> None:
        while not self.is_set:
            self._waiting.append(self._simulation.running())
            self._simulation.give_up_turn()


class _Codes(dict[str, int]):
    """Numbers for names, each computed once."""

    def __missing__(self, name: str) -> int:
        code = self[name] = crc32(name.encode())
        return code


def _name(callback: Callable[[], None]) -> str:
    """Returns the name of the process that gets the turn, else of the callback."""
    if isinstance(callback, partial):
        name: str = getattr(callback.args[0], "name", callback.func.__qualname__)
        return name
    return callback.__qualname__


class Simulation:
    """See the module's docstring. As a context manager it ends all processes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = START_S
        self.current: Process | None = None
        self.after_event: Callable[[], None] = lambda: None
        self.lines: list[str] = []
        self.events = 0
        self._rolled = 0  # hash over all events
        self._codes = _Codes()
        self._digest = hashlib.sha256()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._groups: list[Group] = []
        self._scheduler = getcurrent()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups:
            self._end(group)

    # What happened ------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        who = self.current.name if self.current is not None else "-"
        line = f"{self.now_s - START_S:9.3f} {who}: {text}"
        self.lines.append(line)
        self._digest.update(line.encode())

    @property
    def trace_hash(self) -> str:
        """Hashes every line and every event: its time, its order, and its process or callback.

        Equal in every Python process: Python salts only the hashes of text, and events are hashed
        as numbers.
        """
        digest = self._digest.copy()
        digest.update(b"%d" % self._rolled)
        return digest.hexdigest()[:16]

    # Time ---------------------------------------------------------------------------------------

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._sequence, callback))

    def run(self, until_s: float, done: Callable[[], bool] | None = None) -> bool:
        """Runs events up to `until_s` from the start or until `done`; returns if it was done."""
        while self._heap and self._heap[0][0] <= START_S + until_s:
            self.now_s, sequence, callback = heapq.heappop(self._heap)
            self.events += 1
            code = self._codes[_name(callback)]
            self._rolled = hash((self._rolled, self.now_s, sequence, code))
            callback()
            self.after_event()
            if done is not None and done():
                return True
        self.now_s = max(self.now_s, START_S + until_s)
        return done is not None and done()

    # Processes ----------------------------------------------------------------------------------

    def group(self, name: str, on_death: Callable[[], None] | None = None) -> Group:
        group = Group(name, on_death)
        self._groups.append(group)
        return group

    def kill_named(self, name: str) -> None:
        """Kills the live group of that name, if there is one."""
        for group in self._groups:
            if group.name == name and not group.dead:
                self.kill(group)

    def spawn(self, group: Group, name: str, work: Callable[[], None]) -> Process:
        process = Process(group, name, work, self._scheduler)
        group.processes.append(process)
        self.wake(process, 0.0)
        return process

    def running(self) -> Process:
        if self.current is None:
            raise Defect("only a process can wait")
        return self.current

    def sleep(self, seconds: float) -> None:
        """Suspends the running process; does nothing in the scheduler."""
        if self.current is not None:
            self.wake(self.current, seconds)
            self.give_up_turn()

    def wake(self, process: Process, delay_s: float) -> None:
        self.after(delay_s, partial(self._resume, process))

    def give_up_turn(self) -> None:
        """Suspends the running process until an event wakes it."""
        self.running()
        self._scheduler.switch()

    def pause(self, group: Group, seconds: float) -> None:
        """Acts as SIGSTOP, and as SIGCONT after `seconds`."""
        group.paused_until_s = max(group.paused_until_s, self.now_s + seconds)
        if self.current is not None and self.current.group is group:
            self.sleep(seconds)

    def kill(self, group: Group) -> None:
        """Acts as SIGKILL. Does not return when the running process belongs to the group."""
        if group.dead:
            return
        group.dead = True
        self.after(0.0, lambda: self._bury(group))
        if self.current is not None and self.current.group is group:
            self.current.killed = True
            raise Killed

    def _bury(self, group: Group) -> None:
        self._end(group)
        if group.on_death is not None:
            group.on_death()

    def _end(self, group: Group) -> None:
        group.dead = True
        for process in group.processes:
            process.killed = True
        for process in list(group.processes):
            if process.turns:  # it has begun, so it must unwind
                self._hand_over(process, process.turns.throw, Killed)
            process.turns = None
        group.processes = []

    def _resume(self, process: Process) -> None:
        group = process.group
        if process.turns is None or group.dead:
            return
        if self.now_s < group.paused_until_s:
            self.after(group.paused_until_s - self.now_s, partial(self._resume, process))
            return
        self._hand_over(process, process.turns.switch)
        if process.turns is not None and process.turns.dead:
            process.turns = None
            group.processes.remove(process)

    def _hand_over(self, process: Process, turn: Callable[..., Any], *error: Any) -> None:
        """Raises what the process does not handle itself."""
        self.current = process
        try:
            turn(*error)
        finally:
            self.current = None


class SimulatedClock:
    """`perseid.clocks.Clock` of one group; wall clocks of two hosts differ by `skew_ms`.

    `ahead_ms`: by how much the host's wall clock is currently set ahead.
    """

    def __init__(
        self, simulation: Simulation, skew_ms: int = 0, ahead_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._simulation, self._skew_ms, self._ahead_ms = simulation, skew_ms, ahead_ms

    def monotonic_s(self) -> float:
        return self._simulation.now_s

    def wall_ms(self) -> int:
        right_ms = int((WALL_S + self._simulation.now_s) * 1000)
        return right_ms + self._skew_ms + self._ahead_ms()

    def sleep(self, seconds: float) -> None:
        self._simulation.sleep(seconds)

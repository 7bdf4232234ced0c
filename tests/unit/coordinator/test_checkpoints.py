from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from perseid.coordinator import checkpoints, failing
from perseid.coordinator.actions import DeleteCheckpoints, PutPointers, WriteManifest
from perseid.coordinator.events import ManifestFailed
from perseid.coordinator.lifecycle import Phase
from perseid.records import CheckpointPointer, PartFile
from perseid.topics.records import EpochDone, PartDone, PartFailed, Token
from support.coordinator import Leader, World, part_of

JOB = "wordcount"
PERIOD_S = 30.0


def epoch(world: World, leader: Leader, seconds: float = 0.0) -> Token:
    """Produces, issues and runs one epoch."""
    world.time_s += seconds
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    leader.listen()
    return list(world.valid(JOB).values())[-1]


def checkpoint_token(world: World, leader: Leader) -> Token:
    """A token with a checkpoint, issued and not run."""
    world.time_s += PERIOD_S
    world.produce(0, 10)
    leader.poll()
    token = list(world.valid(JOB).values())[-1]
    assert token.checkpoint
    return token


def done(world: World, token: Token, offset: int) -> EpochDone:
    generation = world.plans[JOB].generation
    world.ledger[JOB] = {0: token.epoch, 1: token.epoch}
    return EpochDone("u1", generation, "w1-1", token.epoch, offset, 10, 10, 5)


def part(world: World, token: Token, partition: int, generation: int | None = None) -> PartDone:
    generation = generation or world.plans[JOB].generation
    plan = replace(world.plans[JOB], generation=generation)
    path = part_of(plan, token.epoch, offset_of(world, token), f"counts-{partition}")
    return PartDone("u1", generation, token.epoch, 1, "counts", partition, path, 7, 1, 0.1)


def offset_of(world: World, token: Token) -> int:
    return next(o for o, valid in world.valid(JOB).items() if valid.epoch == token.epoch)


def note(world: World, leader: Leader, *records: EpochDone | PartDone | PartFailed) -> None:
    world.progress.setdefault(JOB, []).extend(records)
    leader.listen()


def test_a_token_asks_for_a_checkpoint_once_a_period(world: World, leader: Leader) -> None:
    assert not epoch(world, leader).checkpoint
    assert epoch(world, leader, PERIOD_S).checkpoint
    assert not epoch(world, leader, PERIOD_S / 2).checkpoint
    assert epoch(world, leader, PERIOD_S / 2).checkpoint


def test_the_pointer_moves_only_after_the_manifest_is_written(world: World, leader: Leader) -> None:
    epoch(world, leader)
    token = epoch(world, leader, PERIOD_S)
    kinds = [type(a) for a in leader.performed]
    assert kinds.index(WriteManifest) < kinds.index(PutPointers)
    (pointer,) = world.pointers[JOB].pointers
    assert pointer.epoch == token.epoch
    assert world.valid(JOB)[pointer.token_offset] == token
    assert pointer.bytes == 20


def test_two_checkpoints_are_kept(world: World, leader: Leader) -> None:
    epochs = [epoch(world, leader, PERIOD_S).epoch for _ in range(4)]
    assert [p.epoch for p in world.pointers[JOB].pointers] == epochs[:-3:-1]
    deletes = [a for a in leader.performed if isinstance(a, DeleteCheckpoints)]
    assert deletes[-1].live == world.pointers[JOB].pointers


def test_besides_the_newest_two_one_is_kept_that_shares_no_file_with_them() -> None:
    """Three chains: each begins with a whole state, and is changed twice."""
    kept: tuple[CheckpointPointer, ...] = ()
    seen = []
    for number in range(1, 10):
        base = number - (number - 1) % 3
        kept = checkpoints._kept(pointer_of(*range(base, number + 1)), kept)
        seen.append([p.epoch for p in kept])
    assert seen == [
        [1], [2, 1], [3, 2],
        [4, 3], [5, 4, 3], [6, 5, 3],
        [7, 6], [8, 7, 6], [9, 8, 6],
    ]  # fmt: skip


def test_a_chain_that_began_before_the_last_link_of_another_one_is_kept_too() -> None:
    """Simulation seed 1079: 4 was whole, 5 and 7 changed 3, and 4 was forgotten."""
    kept: tuple[CheckpointPointer, ...] = ()
    for needs in ((2,), (3,), (4,), (3, 5), (3, 5, 7), (3, 5, 7, 8)):
        kept = checkpoints._kept(pointer_of(*needs), kept)
    assert [p.epoch for p in kept] == [8, 7, 4]


def test_a_checkpoint_with_another_base_and_a_file_in_common_is_not_apart() -> None:
    """Of two partitions one is whole in 2 and changed in 3, the other changed in 2, whole in 3."""
    kept: tuple[CheckpointPointer, ...] = ()
    for needs in ((1,), (1, 2), (2, 3)):
        kept = checkpoints._kept(pointer_of(*needs), kept)
    assert [p.epoch for p in kept] == [3, 2, 1]
    kept = checkpoints._kept(pointer_of(2, 3, 4), kept)
    assert [p.epoch for p in kept] == [4, 3, 1]


def pointer_of(*needs: int) -> CheckpointPointer:
    number = needs[-1]
    return CheckpointPointer(
        number, 1, 1, "r", 10 * number, f"c-{number}", 1, 7, 0, needs[0], needs
    )


def test_a_part_of_changes_counts_while_the_checkpoint_that_it_changes_is_kept(
    world: World, leader: Leader
) -> None:
    first, second = (epoch(world, leader, PERIOD_S).epoch for _ in range(2))
    for base, complete in ((first, True), (second, True), (second - 1, False)):
        token = checkpoint_token(world, leader)
        chain = (PartFile("p", base, 7, 1),)
        note(world, leader, *(replace(part(world, token, p), chain=chain) for p in (0, 1)),
            done(world, token, leader.job().chain.tip.offset))  # fmt: skip
        assert (world.pointers[JOB].pointers[0].epoch == token.epoch) == complete
        collecting = leader.job().checkpointing.collecting
        assert collecting is None, "aborted at once; simulation seed 1779"
    assert "changes checkpoint 1, which is no longer kept" in leader.job().health.events[-1]


def test_what_an_owner_restores_from_is_kept(world: World, leader: Leader) -> None:
    """An owner from before may still complete checkpoints; simulation seed 16107."""
    oldest, *_ = [epoch(world, leader, PERIOD_S).epoch for _ in range(3)]
    job = leader.job()
    assert job.plan is not None
    (newest, fallback) = job.kept
    plan = replace(job.plan, checkpoints=(replace(fallback, epoch=oldest),))
    number = newest.epoch + 1
    pointer = replace(newest, epoch=number, base_epoch=number, needs=(number,))
    collects = job.checkpointing.collects(pointer.epoch, pointer.token_offset, 0.0)
    for phase, kept in (
        (Phase.RESTORING, [pointer.epoch, newest.epoch, oldest]),
        (Phase.RUNNING, [pointer.epoch, newest.epoch]),
    ):
        owned = job.ownership.renamed(plan)
        restoring = replace(job, ownership=owned, phase=phase, checkpointing=collects)
        _, actions = checkpoints.written(restoring, pointer, world.now)
        (delete,) = [a for a in actions if isinstance(a, DeleteCheckpoints)]
        assert [p.epoch for p in delete.live] == kept


def test_parts_must_be_all_there_and_of_one_generation(world: World, leader: Leader) -> None:
    token = checkpoint_token(world, leader)
    offset = leader.job().chain.tip.offset
    note(world, leader, done(world, token, offset), part(world, token, 0),
        part(world, token, 1, generation=99))  # fmt: skip
    assert JOB not in world.pointers
    note(world, leader, part(world, token, 0, generation=99))
    assert world.pointers[JOB].pointers[0].generation == 99


def test_parts_are_not_enough_before_the_sinks_have_committed(world: World, leader: Leader) -> None:
    token = checkpoint_token(world, leader)
    note(world, leader, part(world, token, 0), part(world, token, 1))
    assert JOB not in world.pointers
    note(world, leader, done(world, token, leader.job().chain.tip.offset))
    assert world.pointers[JOB].pointers[0].epoch == token.epoch


def test_a_failed_part_gives_the_checkpoint_up_and_the_next_token_takes_one(
    world: World, leader: Leader
) -> None:
    token = checkpoint_token(world, leader)
    note(world, leader, PartFailed("u1", 1, token.epoch, "counts", 1, "disk full"),
        done(world, token, leader.job().chain.tip.offset))  # fmt: skip
    assert JOB not in world.pointers
    assert "disk full" in leader.job().health.events[-1]
    assert epoch(world, leader).checkpoint
    assert JOB in world.pointers


def test_a_store_that_stays_full_is_asked_ever_less_often(world: World, leader: Leader) -> None:
    """Each attempt costs the tasks their snapshots and the job an event."""
    begun_s: list[float] = []
    world.time_s += PERIOD_S
    while len(begun_s) < 9:
        world.time_s += 0.25
        world.produce(0, 10)
        leader.poll()
        collecting = leader.job().checkpointing.collecting
        if collecting is not None:
            begun_s.append(world.time_s)
            note(world, leader, PartFailed("u1", 1, collecting.epoch, "counts", 1, "disk full"))
        world.work(JOB)
        leader.listen()
    between_s = [later - earlier for earlier, later in pairwise(begun_s)]
    assert between_s == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    world.time_s += failing.RETRY_MAX_S
    assert epoch(world, leader).checkpoint
    assert JOB in world.pointers
    assert (leader.job().checkpointing.unwritten, leader.job().checkpointing.again_s) == (0, 0.0)


def test_a_manifest_that_cannot_be_written_gives_the_checkpoint_up(
    world: World, leader: Leader
) -> None:
    token = checkpoint_token(world, leader)
    leader.feed(ManifestFailed(JOB, "u1", token.epoch, "store is away"))
    assert leader.job().checkpointing.collecting is None
    assert "store is away" in leader.job().health.events[-1]


def test_a_checkpoint_that_takes_too_long_is_aborted(world: World, leader: Leader) -> None:
    checkpoint_token(world, leader)
    leader.tick(checkpoints.COLLECTING_MAX_S)
    assert leader.job().checkpointing.collecting is None
    assert "not complete after 300 s" in leader.job().health.events[-1]


def test_a_large_state_has_the_time_that_a_slow_line_needs(world: World, leader: Leader) -> None:
    """Aborted after 300 s whatever its size, it was begun again without end."""
    token = checkpoint_token(world, leader)
    reported = replace(done(world, token, leader.job().chain.tip.offset), state_bytes=900_000_000)
    note(world, leader, reported)
    successor = Leader(world)
    for one in (leader, successor):
        one.look()
        one.tick(899.0)
        assert one.job().checkpointing.collecting is not None
    successor.tick(2.0)
    assert successor.job().checkpointing.collecting is None


def test_a_part_of_a_token_that_was_taken_back_does_not_count(world: World, leader: Leader) -> None:
    """The epoch has been issued again since, with other input perhaps."""
    token = checkpoint_token(world, leader)
    offset = leader.job().chain.tip.offset
    parts = [part(world, token, p) for p in (0, 1)]
    stale = [replace(p, path=p.path.replace(f"-t{offset}/", f"-t{offset - 1}/")) for p in parts]
    assert stale != parts
    note(world, leader, *stale, done(world, token, offset))
    successor = Leader(world)
    successor.look()
    for one in (leader, successor):
        collecting = one.job().checkpointing.collecting
        assert collecting is not None
        assert not collecting.parts


def test_a_new_owner_does_not_deliver_parts_of_an_epoch_that_was_done(
    world: World, leader: Leader
) -> None:
    token = checkpoint_token(world, leader)
    note(world, leader, done(world, token, leader.job().chain.tip.offset))
    assert leader.job().checkpointing.collecting is not None
    world.workers = ["w2-1"]
    leader.look()
    assert leader.job().checkpointing.collecting is None


def test_a_new_owner_that_resumes_after_the_epoch_does_not_either(
    world: World, leader: Leader
) -> None:
    token = checkpoint_token(world, leader)
    world.workers = ["w2-1"]  # the old owner ended the epoch and died before it reported it
    leader.look()
    assert leader.job().checkpointing.collecting is not None
    world.report(JOB, "running", epoch=token.epoch)
    leader.listen()
    assert leader.job().checkpointing.collecting is None
    assert leader.job().done == token.epoch


def test_a_new_leader_completes_what_the_old_one_was_collecting(
    world: World, leader: Leader
) -> None:
    token = checkpoint_token(world, leader)
    note(world, leader, part(world, token, 0))
    successor = Leader(world)
    successor.look()
    note(world, successor, part(world, token, 1), done(world, token, leader.job().chain.tip.offset))
    assert world.pointers[JOB].pointers[0].epoch == token.epoch


def test_a_new_leader_gives_up_what_the_present_owner_resumed_after(
    world: World, leader: Leader
) -> None:
    """Simulation seeds 1199 and 1899: it collected until the 300 s were over."""
    token = checkpoint_token(world, leader)
    world.workers = ["w2-1"]
    leader.look()
    world.report(JOB, "running", epoch=token.epoch)
    successor = Leader(world)
    successor.look()
    assert successor.job().done == token.epoch
    assert successor.job().checkpointing.collecting is None


def test_an_idle_job_takes_a_checkpoint_only_when_the_replay_gets_long(
    world: World, leader: Leader
) -> None:
    epoch(world, leader)
    epoch(world, leader, PERIOD_S)
    since = 0
    while world.pointers[JOB].pointers[0].epoch == 2:
        leader.tick(10)
        world.work(JOB)
        leader.listen()
        since += 1
    assert since == checkpoints.REPLAY_TOKENS_MAX + 1


def test_a_job_without_state_completes_with_its_epoch(world: World, leader: Leader) -> None:
    job = leader.job()
    assert job.layout is not None
    stateless = replace(job.layout, tasks=())
    leader.state = leader.state.with_job(replace(job, layout=stateless))
    token = checkpoint_token(world, leader)
    note(world, leader, done(world, token, leader.job().chain.tip.offset))
    assert world.pointers[JOB].pointers[0].epoch == token.epoch

"""Planted defects, by name: patches of production code that some history must detect."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest.mock import patch

from perseid.coordinator import replicas as coordinator_replicas
from perseid.testing.simulation import approximate, buffered
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.role_scripts import (
    Audited,
    Diverging,
    DivergingAtDeath,
    Gated,
    SlowReplica,
)
from perseid.testing.simulation.scenario import Outcome, run
from perseid.testing.simulation.scripts import (
    Corrected,
    LateAnswers,
    LedgerCut,
    Overtaken,
    Slow,
    SourceCut,
    SwitchedOff,
)
from perseid.testing.simulation.swarm import Swarm
from support.mutants import (
    approximation,
    checkpoints,
    edges,
    fragments,
    gates,
    leaders,
    mended,
    operators,
    replicas,
    sinks,
    states,
    tokens,
)
from support.mutants.planting import Planted

SMALL = Shape(workers=2, totals=2, relays=0, period_s=1.0)
APART = Shape(workers=2, totals=1, relays=0, period_s=0.5)
RETAINING = Shape(workers=2, hosts=1, totals=2, relays=2, sink_on_totals=True, period_s=1.0,
                  retains=True)  # fmt: skip
SINGLE = Shape(workers=2, hosts=1, totals=1, relays=0)
# Zombie attempts of tasks that outlive checkpoints.
LATE_PARTS = Swarm(switch=0.02, twin_task=0.02, kill_worker=0.002, asks=True)
RETRIED = Swarm(switch=0.02, kill_task=0.02, twin_task=0.01)
LOST_TAILS = Swarm(switch=0.02, lose_tails=0.1)
SHUFFLES = Swarm(switch=0.02, shuffle=0.05)
# Restores from older checkpoints while reports of parts based on newer ones are late.
DAMAGED_PARTS = Swarm(
    switch=0.1, twin_task=0.02, kill_worker=0.006, kafka_late=0.05, damage_part=0.4,
    erase_state=0.5, asks=True,
)  # fmt: skip

# Jobs of several fragments; of three, one has no partition of the second level.
THREE = Shape(workers=3, hosts=1, totals=3, relays=2, sink_on_totals=True, period_s=1.0, spread=3)
FULL = replace(THREE, buffer_bytes=20_000)
TWO = replace(Corrected.SHAPE, spread=2)
LARGE_SETS = Shape(workers=2, hosts=1, totals=1, relays=2, every_s=1.0, spread=2)
LOSSES = Swarm(switch=0.02, kill_worker=0.004, kafka_lost=0.03, kafka_unanswered=0.02)
LOSSES_AND_ERRORS = Corrected(switch=0.1, kill_worker=0.003, kafka_unanswered=0.02)
RETRIED_SENDS = Swarm(switch=0.02, kafka_lost=0.1, kafka_unanswered=0.1)
DIVERGING = Diverging(switch=0.02)
REVISED = Gated(switch=0.02, revised=True)
APPROVED = replace(REVISED, approves="total")
OTHERWISE_APPROVED = replace(REVISED, approves="key")
GATES_DIE = Gated(switch=0.02, kill_worker=0.01)
AT_DEATH = DivergingAtDeath(switch=0.02)
# Jobs with an operator more; its state is restored from logs and checkpoints, and redistributed.
RESTORED = Swarm(switch=0.02, kill_worker=0.006, erase_state=0.3, asks=True)
RESTORED_AND_RESCALED = replace(RESTORED, rescales=True)


def far_soon(seed: int) -> Outcome:
    """A history with a slow replica, to which a few epochs are far."""
    with patch.object(coordinator_replicas, "FAR", 8):
        return run(seed, SlowReplica.SHAPE, SlowReplica(switch=0.02, kill_worker=0.001))


_DRAWN = (
    sinks.no_read_back, sinks.ledger_outside_the_transaction,
    tokens.of_protocol_2(sinks.no_generation_check), sinks.one_producer_for_all_attempts,
    sinks.ledger_is_read_before_the_fence, sinks.unknown_commit_counts_as_done,
    sinks.open_transactions_are_read, sinks.new_owners_name_no_environment,
    sinks.environments_are_trimmed,
    states.dirty_copy_is_kept, states.resume_after_the_highest, states.outputs_are_not_retained,
    states.damaged_part_means_empty, states.old_log_is_trusted, states.collecting_takes_the_base,
    states.checksums_are_not_checked, states.logs_are_collected_too_early,
    states.ledgers_do_not_count_in_a_restore,
    tokens.claims_do_not_count, tokens.void_tokens_run, tokens.conflicts_are_swallowed,
    tokens.generations_start_again, tokens.append_of_unknown_outcome_is_repeated,
    tokens.watermark_falls, tokens.the_main_output_is_fed_back,
    tokens.tokens_of_later_plans_run, tokens.batch_numbers_identify_epochs,
    tokens.batch_numbers_continue,
    tokens.wall_clocks_are_believed, tokens.time_waits_for_the_clock,
    tokens.new_leaders_believe_their_own_clock, tokens.new_leaders_believe_the_brokers_clock,
    tokens.actions_of_a_job_overtake_each_other, tokens.what_follows_a_failed_action_is_done,
    checkpoints.checkpoint_before_all_parts, checkpoints.net_deltas_lack_an_epoch,
    checkpoints.links_are_collected, checkpoints.checkpoints_without_output,
    checkpoints.logs_are_trimmed_after_the_newest, checkpoints.last_ledger_records_are_trimmed,
    mended.superseded_checkpoints_are_waited_for,
    mended.topics_are_not_identified, mended.orders_die_with_their_process,
    leaders.moves_keep_their_generation, leaders.restores_take_back_what_is_done,
)  # fmt: skip
_SET_UP = (
    Planted(tokens.of_protocol_2(mended.tokens_are_read_before_the_fence), SINGLE, Overtaken()),
    Planted(
        tokens.of_protocol_2(mended.checkpoints_of_a_restore_are_deleted),
        APART,
        Overtaken(waits_s=8.0),
    ),
    Planted(tokens.time_passes_only_under_a_leader, SINGLE, SwitchedOff()),
    Planted(tokens.reports_before_the_answer_are_judged, APART, LateAnswers()),
    Planted(tokens.watchers_pass_over_what_is_lost, SMALL, LOST_TAILS),
    Planted(tokens.sources_that_were_cut_are_read_on, SINGLE, SourceCut()),
    Planted(tokens.last_words_are_reported_once, SMALL, LOST_TAILS),
    Planted(states.deltas_appear_before_their_outputs, RETAINING, RETRIED),
    Planted(states.outputs_are_released_too_early, RETAINING, RETRIED),
    Planted(mended.expired_bases_are_waited_for, APART, DAMAGED_PARTS),
    Planted(mended.kinds_of_parts_share_a_name, SMALL, LATE_PARTS),
    Planted(
        mended.complete_checkpoints_prove_nothing,
        SINGLE,
        LedgerCut("checkpoint", offsets=2, kills=True),
    ),
    Planted(mended.markers_are_forgotten, SINGLE, LedgerCut("commit", offsets=1)),
    Planted(
        mended.what_others_wrote_is_forgotten,
        SINGLE,
        LedgerCut("begin", offsets=2, of_new_owner=True),
    ),
    Planted(
        mended.ledgers_are_not_claimed,
        Corrected.SHAPE,
        Corrected(switch=0.3, twin_task=0.05, pause_worker=0.02, where="totals-0"),
    ),
    Planted(
        mended.half_committed_epochs_are_taken_back, Corrected.SHAPE, Corrected(where="relay-0")
    ),
    Planted(mended.the_old_revision_ends_the_job, Corrected.SHAPE, Corrected(where="after")),
    Planted(mended.slowness_is_waited_out, Slow.SHAPE, Slow(longest_s=10.0)),
    Planted(edges.barriers_are_miscounted, Shape(), SHUFFLES),
    Planted(edges.chunks_of_other_attempts_are_taken, Shape(), SHUFFLES),
    Planted(
        leaders.checkpoints_outlive_their_tokens,
        replace(Corrected.SHAPE, period_s=0.5),
        Corrected(where="totals-0"),
    ),
)
_SPREAD = (
    Planted(fragments.last_epochs_are_not_sent_again, THREE, LOSSES),
    Planted(fragments.retained_outputs_are_not_sent, THREE, LOSSES),
    Planted(fragments.sends_are_not_awaited, THREE, LOSSES),
    Planted(fragments.barriers_expect_one_origin_less, THREE, LOSSES),
    Planted(fragments.fragments_share_their_logs, THREE, LOSSES),
    Planted(fragments.fragments_trim_after_the_newest, THREE, Swarm(switch=0.02)),
    Planted(fragments.chunks_of_two_attempts_make_a_set, LARGE_SETS, RETRIED_SENDS),
    Planted(fragments.sets_belong_to_epochs, TWO, replace(LOSSES_AND_ERRORS, where="source")),
    Planted(fragments.checkpoints_lack_a_fragment, THREE, LOSSES),
    Planted(fragments.sent_bytes_are_not_reported, THREE, Swarm(switch=0.02)),
    Planted(fragments.buffers_are_counted_from_the_newest, FULL, Swarm(switch=0.02)),
    Planted(fragments.full_buffers_wait_for_no_checkpoint, FULL, Swarm(switch=0.02)),
    Planted(fragments.freeing_parts_build_on_older_ones, FULL, Swarm(switch=0.02)),
)
_OPERATORS = (
    Planted(operators.deltas_of_pools_lack_a_row, replace(SMALL, drawn="Pool"), RESTORED),
    Planted(operators.discarded_members_come_back, replace(SMALL, drawn="Set"), RESTORED),
    Planted(operators.deltas_of_cells_are_lost, replace(SMALL, drawn="Vector"), RESTORED),
    Planted(operators.due_timers_stay, replace(SMALL, drawn="Timers", timed=True), RESTORED),
    Planted(
        operators.rescales_are_not_called, replace(SMALL, drawn="Value"), RESTORED_AND_RESCALED
    ),
    Planted(
        operators.random_numbers_are_the_processes,
        replace(SMALL, drawn="KMeans", timed=True), RESTORED,
    ),
)  # fmt: skip
_APPROXIMATE = (
    approximation.checked_afterwards, approximation.reset_on_issue,
    approximation.starts_at_theta, approximation.redis_is_the_truth,
    approximation.failures_count_late, approximation.old_backups_are_taken,
)  # fmt: skip

_REPLICATED = (
    replicas.replicas_commit, replicas.replicas_order_parts, replicas.replicas_report_event_times,
    replicas.promotions_read_no_ledgers, replicas.promotions_skip_uncommitted_epochs,
    replicas.promotions_keep_their_generation, replicas.takeovers_delete_the_other_copy,
    replicas.copies_share_their_logs, replicas.outputs_are_released_before_they_are_committed,
    replicas.replicas_prove_commits, replicas.replicas_count_for_epochs,
)  # fmt: skip
_DIVERGING = (
    replicas.replicas_are_not_compared, replicas.only_counts_are_compared,
    replicas.diverged_replicas_are_placed_again,
)  # fmt: skip
_GATED = (
    gates.gates_count_epochs_unseen, gates.gates_are_not_muted,
    gates.refused_revisions_are_compared_again, gates.gates_pass_at_once,
)  # fmt: skip
_AUDITED = (
    checkpoints.horizons_hold_no_log, checkpoints.horizons_hold_no_files,
    checkpoints.horizons_hold_no_archives, checkpoints.horizons_begin_too_late,
    checkpoints.changes_of_revision_are_thinned_out,
)  # fmt: skip

PLANTED: dict[str, Planted] = {
    one.name: one
    for one in (
        *map(Planted, _DRAWN), *_SET_UP, *_SPREAD, *_OPERATORS,
        *(Planted(mutant, play=approximate.run) for mutant in _APPROXIMATE),
        *(Planted(mutant, play=partial(run, replicas=True)) for mutant in _REPLICATED),
        *(Planted(mutant, Diverging.SHAPE, DIVERGING) for mutant in _DIVERGING),
        Planted(replicas.replicas_begin_again_at_old_checkpoints, play=far_soon),
        Planted(replicas.promotions_compare_nothing, Diverging.SHAPE, AT_DEATH),
        Planted(replicas.replicas_that_had_diverged_keep_their_log, Diverging.SHAPE, AT_DEATH),
        *(Planted(mutant, Gated.SHAPE, REVISED) for mutant in _GATED),
        *(Planted(mutant, Audited.SHAPE, Audited(switch=0.02)) for mutant in _AUDITED),
        Planted(gates.approvals_take_anything, Gated.SHAPE, OTHERWISE_APPROVED),
        Planted(gates.approved_epochs_do_not_count, Gated.SHAPE, APPROVED),
        Planted(gates.differences_are_looked_at_too_late, Gated.SHAPE, APPROVED),
        Planted(gates.gates_count_what_died_with_them, Gated.SHAPE, GATES_DIE),
        Planted(edges.attempts_are_mixed, play=buffered.run),
        Planted(edges.buffers_are_trimmed_after_the_newest, play=buffered.run),
    )
}  # fmt: skip

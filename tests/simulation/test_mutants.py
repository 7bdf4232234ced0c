"""Planted defects: each is found by the simulation, with the seed that is written after it.

When the engine or the code changes so that histories are others, a seed may find its defect no
longer. `./perseid test --ring simulation --matrix -k within_2000` looks for the first ones that do,
in some minutes on all cores, and prints FOUND_BY again.
"""

from __future__ import annotations

import pytest

from support.mutants import PLANTED
from support.mutants.planting import SEEDS_MAX, find
from support.mutants.search import search

FOUND_BY = {
    "no_read_back": 0,
    "ledger_outside_the_transaction": 0,
    "no_generation_check": 45,
    "one_producer_for_all_attempts": 1,
    "ledger_is_read_before_the_fence": 50,
    "unknown_commit_counts_as_done": 29,
    "open_transactions_are_read": 0,
    "new_owners_name_no_environment": 0,
    "environments_are_trimmed": 0,
    "dirty_copy_is_kept": 18,
    "resume_after_the_highest": 4,
    "outputs_are_not_retained": 251,
    "damaged_part_means_empty": 19,
    "old_log_is_trusted": 4,
    "collecting_takes_the_base": 0,
    "checksums_are_not_checked": 18,
    "logs_are_collected_too_early": 9,
    "ledgers_do_not_count_in_a_restore": 8,
    "claims_do_not_count": 69,
    "void_tokens_run": 60,
    "conflicts_are_swallowed": 65,
    "generations_start_again": 4,
    "append_of_unknown_outcome_is_repeated": 9,
    "watermark_falls": 43,
    "the_main_output_is_fed_back": 15,
    "tokens_of_later_plans_run": 1,
    "batch_numbers_identify_epochs": 0,
    "batch_numbers_continue": 0,
    "wall_clocks_are_believed": 6,
    "time_waits_for_the_clock": 6,
    "new_leaders_believe_their_own_clock": 6,
    "new_leaders_believe_the_brokers_clock": 81,
    "actions_of_a_job_overtake_each_other": 13,
    "what_follows_a_failed_action_is_done": 159,
    "checkpoint_before_all_parts": 6,
    "net_deltas_lack_an_epoch": 13,
    "links_are_collected": 13,
    "checkpoints_without_output": 50,
    "logs_are_trimmed_after_the_newest": 0,
    "last_ledger_records_are_trimmed": 0,
    "deltas_appear_before_their_outputs": 1,
    "outputs_are_released_too_early": 0,
    "expired_bases_are_waited_for": 381,
    "superseded_checkpoints_are_waited_for": 201,
    "topics_are_not_identified": 21,
    "orders_die_with_their_process": 49,
    "tokens_are_read_before_the_fence": 0,
    "checkpoints_of_a_restore_are_deleted": 0,
    "time_passes_only_under_a_leader": 0,
    "reports_before_the_answer_are_judged": 0,
    "kinds_of_parts_share_a_name": 48,
    "complete_checkpoints_prove_nothing": 2,
    "markers_are_forgotten": 0,
    "what_others_wrote_is_forgotten": 1,
    "ledgers_are_not_claimed": 118,
    "half_committed_epochs_are_taken_back": 0,
    "the_old_revision_ends_the_job": 0,
    "slowness_is_waited_out": 0,
    "barriers_are_miscounted": 0,
    "chunks_of_other_attempts_are_taken": 0,
    "last_epochs_are_not_sent_again": 5,
    "retained_outputs_are_not_sent": 0,
    "sends_are_not_awaited": 0,
    "barriers_expect_one_origin_less": 0,
    "fragments_share_their_logs": 25,
    "fragments_trim_after_the_newest": 0,
    "chunks_of_two_attempts_make_a_set": 0,
    "sets_belong_to_epochs": 0,
    "checkpoints_lack_a_fragment": 0,
    "deltas_of_pools_lack_a_row": 1,
    "discarded_members_come_back": 4,
    "deltas_of_cells_are_lost": 0,
    "due_timers_stay": 0,
    "rescales_are_not_called": 0,
    "random_numbers_are_the_processes": 3,
    "sent_bytes_are_not_reported": 0,
    "buffers_are_counted_from_the_newest": 1,
    "full_buffers_wait_for_no_checkpoint": 1,
    "freeing_parts_build_on_older_ones": 9,
    "checked_afterwards": 2,
    "reset_on_issue": 115,
    "starts_at_theta": 18,
    "redis_is_the_truth": 42,
    "failures_count_late": 7,
    "old_backups_are_taken": 18,
    "watchers_pass_over_what_is_lost": 26,
    "sources_that_were_cut_are_read_on": 1,
    "last_words_are_reported_once": 65,
    "attempts_are_mixed": 1,
    "buffers_are_trimmed_after_the_newest": 95,
    "moves_keep_their_generation": 0,
    "restores_take_back_what_is_done": 10,
    "checkpoints_outlive_their_tokens": 1,
    "replicas_commit": 0,
    "replicas_order_parts": 0,
    "replicas_report_event_times": 1,
    "promotions_read_no_ledgers": 1,
    "promotions_skip_uncommitted_epochs": 0,
    "promotions_keep_their_generation": 1,
    "takeovers_delete_the_other_copy": 1,
    "copies_share_their_logs": 0,
    "outputs_are_released_before_they_are_committed": 25,
    "replicas_prove_commits": 11,
    "replicas_count_for_epochs": 0,
    "replicas_are_not_compared": 0,
    "only_counts_are_compared": 0,
    "diverged_replicas_are_placed_again": 0,
    "replicas_begin_again_at_old_checkpoints": 0,
    "promotions_compare_nothing": 0,
    "replicas_that_had_diverged_keep_their_log": 0,
    "gates_count_epochs_unseen": 0,
    "gates_are_not_muted": 0,
    "refused_revisions_are_compared_again": 0,
    "gates_pass_at_once": 0,
    "horizons_hold_no_log": 0,
    "horizons_hold_no_files": 0,
    "horizons_hold_no_archives": 0,
    "horizons_begin_too_late": 0,
    "changes_of_revision_are_thinned_out": 0,
    "approvals_take_anything": 0,
    "approved_epochs_do_not_count": 0,
    "differences_are_looked_at_too_late": 0,
    "gates_count_what_died_with_them": 5,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str) -> None:
    planted, seed = PLANTED[name], FOUND_BY[name]
    assert find(planted, [seed]), f"seed {seed} finds it no longer: see the top of this file"
    without = planted.played(seed)
    assert not without.error, f"it fails without the defect too: {without.explain()}"


@pytest.mark.matrix
@pytest.mark.timeout(0)
def test_every_planted_defect_is_found_within_2000_seeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dict(search(PLANTED))
    with capsys.disabled():
        lines = [f'    "{name}": {found[name]},' for name in PLANTED]
        print("\nFOUND_BY = {", *lines, "}", sep="\n")
    assert SEEDS_MAX == 2000
    assert [name for name in PLANTED if found[name] is None] == []

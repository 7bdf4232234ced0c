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
    "no_generation_check": 348,
    "one_producer_for_all_attempts": 0,
    "ledger_is_read_before_the_fence": 12,
    "unknown_commit_counts_as_done": 14,
    "open_transactions_are_read": 0,
    "dirty_copy_is_kept": 52,
    "resume_after_the_highest": 6,
    "outputs_are_not_retained": 6,
    "damaged_part_means_empty": 59,
    "old_log_is_trusted": 6,
    "collecting_takes_the_base": 2,
    "checksums_are_not_checked": 6,
    "logs_are_collected_too_early": 6,
    "ledgers_do_not_count_in_a_restore": 8,
    "claims_do_not_count": 72,
    "void_tokens_run": 69,
    "conflicts_are_swallowed": 153,
    "generations_start_again": 4,
    "append_of_unknown_outcome_is_repeated": 9,
    "watermark_falls": 43,
    "the_main_output_is_fed_back": 15,
    "tokens_of_later_plans_run": 3,
    "batch_numbers_identify_epochs": 0,
    "batch_numbers_continue": 0,
    "wall_clocks_are_believed": 6,
    "time_waits_for_the_clock": 11,
    "new_leaders_believe_their_own_clock": 61,
    "new_leaders_believe_the_brokers_clock": 1,
    "checkpoint_before_all_parts": 15,
    "net_deltas_lack_an_epoch": 22,
    "links_are_collected": 49,
    "checkpoints_without_output": 66,
    "logs_are_trimmed_after_the_newest": 3,
    "last_ledger_records_are_trimmed": 1,
    "expired_bases_are_waited_for": 31,
    "superseded_checkpoints_are_waited_for": 159,
    "topics_are_not_identified": 21,
    "orders_die_with_their_process": 59,
    "tokens_are_read_before_the_fence": 0,
    "checkpoints_of_a_restore_are_deleted": 0,
    "time_passes_only_under_a_leader": 0,
    "kinds_of_parts_share_a_name": 4,
    "complete_checkpoints_prove_nothing": 2,
    "markers_are_forgotten": 0,
    "what_others_wrote_is_forgotten": 1,
    "ledgers_are_not_claimed": 157,
    "half_committed_epochs_are_taken_back": 0,
    "the_old_revision_ends_the_job": 0,
    "slowness_is_waited_out": 0,
    "checked_afterwards": 2,
    "reset_on_issue": 115,
    "starts_at_theta": 18,
    "redis_is_the_truth": 42,
    "failures_count_late": 7,
    "old_backups_are_taken": 18,
    "watchers_pass_over_what_is_lost": 29,
    "sources_that_were_cut_are_read_on": 1239,
    "last_words_are_reported_once": 89,
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

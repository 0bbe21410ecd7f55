//! The contract suite: what every provider of the Location Store must show (spec 03 §18).
//!
//! A provider implements [`Provider`] and invokes [`contract_tests!`](crate::contract_tests) once in a test file:
//!
//! ```ignore
//! spotmesh::contract_tests!(futures::executor::block_on, async { MyProvider::fresh().await });
//! ```
//!
//! Every test gets a fresh namespace and uses nothing but the [`crate::driver::LocationStore`] trait and the provider's few
//! powers over time and sequences.
// Tests are allowed to panic; these live in the library only so that several crates can run them.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod aggregate;
pub mod close;
pub mod creation;
mod fixture;
pub mod garbage;
pub mod identity;
mod moves;
pub mod node;
mod provider;
pub mod relocation;
pub mod reserve;
pub mod settle;
mod settle_script;
pub mod watch;

pub use provider::{Capacity, Provider, Slots};

/// Makes one `#[test]` of every item of the suite.
///
/// The first argument runs a future to its end; the second is an expression of a future that yields a
/// [`Provider`] with a fresh namespace, evaluated anew for every test.
#[macro_export]
macro_rules! contract_tests {
    ($block_on:path, $provider:expr) => {
        $crate::contract_tests!(@with $block_on, $provider);
    };
    (@with $block_on:path, $provider:expr) => {
        use $crate::store::contract as suite;

        #[test]
        fn store_t2_reserve_makes_row_and_bundle_visible_together() {
            $block_on(async { suite::reserve::reserve_makes_row_and_bundle_visible_together(&$provider.await).await });
        }

        #[test]
        fn store_t3_concurrent_reserves_of_one_key_have_one_winner() {
            $block_on(async { suite::reserve::concurrent_reserves_of_one_key_have_one_winner(&$provider.await).await });
        }

        #[test]
        fn store_t4_concurrent_reserves_admit_exactly_the_limit() {
            $block_on(async { suite::reserve::concurrent_reserves_admit_exactly_the_limit(&$provider.await).await });
        }

        #[test]
        fn store_t5_the_end_of_a_creation_shows_all_its_parts_at_once() {
            $block_on(async { suite::creation::the_end_of_a_creation_shows_all_its_parts_at_once(&$provider.await).await });
        }

        #[test]
        fn store_t6_an_abort_without_record_leaves_none_and_defeats_a_late_commit() {
            $block_on(async {
                suite::creation::an_abort_without_record_leaves_none_and_defeats_a_late_commit(&$provider.await).await
            });
        }

        #[test]
        fn store_t7_a_terminal_record_answers_its_identity_until_its_retention_ends() {
            $block_on(async {
                suite::creation::a_terminal_record_answers_its_identity_until_its_retention_ends(&$provider.await).await
            });
        }

        #[test]
        fn store_t8_no_time_frees_a_creating_row_while_its_target_lives() {
            $block_on(async { suite::creation::no_time_frees_a_creating_row_while_its_target_lives(&$provider.await).await });
        }

        #[test]
        fn store_t9_weight_and_drain_after_reserve_do_not_stop_the_commit() {
            $block_on(async { suite::reserve::weight_and_drain_after_reserve_do_not_stop_the_commit(&$provider.await).await });
        }

        #[test]
        fn store_t10_generations_follow_incarnation_and_owner() {
            $block_on(async { suite::relocation::generations_follow_incarnation_and_owner(&$provider.await).await });
        }

        #[test]
        fn store_t11_one_commit_changes_authority_memberships_capacity_and_generations() {
            $block_on(async { suite::relocation::one_commit_changes_authority_memberships_capacity_and_generations(&$provider.await).await });
        }

        #[test]
        fn store_t12_all_members_switch_in_one_step() {
            $block_on(async { suite::aggregate::all_members_switch_in_one_step(&$provider.await).await });
        }

        #[test]
        fn store_t13_a_commit_needs_exactly_what_was_prepared() {
            $block_on(async { suite::aggregate::a_commit_needs_exactly_what_was_prepared(&$provider.await).await });
        }

        #[test]
        fn store_t14_no_participant_goes_back_after_the_commit() {
            $block_on(async { suite::aggregate::no_participant_goes_back_after_the_commit(&$provider.await).await });
        }

        #[test]
        fn store_t15_an_abort_releases_the_target_and_defeats_a_late_commit() {
            $block_on(async { suite::relocation::an_abort_releases_the_target_and_defeats_a_late_commit(&$provider.await).await });
        }

        #[test]
        fn store_t16_a_moving_per_actor_spot_counts_its_members_on_both_sides() {
            $block_on(async { suite::relocation::a_moving_per_actor_spot_counts_its_members_on_both_sides(&$provider.await).await });
        }

        #[test]
        fn store_t17_a_spot_with_members_cannot_close_and_no_race_leaves_a_member_behind() {
            $block_on(async {
                suite::close::a_spot_with_members_cannot_close_and_no_race_leaves_a_member_behind(&$provider.await).await
            });
        }

        #[test]
        fn store_t19_a_live_claim_keeps_rid_and_entry_spot_id() {
            $block_on(async { suite::node::a_live_claim_keeps_rid_and_entry_spot_id(&$provider.await).await });
        }

        #[test]
        fn store_t20_an_unpublished_claim_is_invisible_and_a_repeated_revision_ignored() {
            $block_on(async {
                suite::node::an_unpublished_claim_is_invisible_and_a_repeated_revision_ignored(&$provider.await).await
            });
        }

        #[test]
        fn store_t21_renew_works_past_expiry_until_fenced_and_a_resumed_owner_changes_nothing() {
            $block_on(async {
                suite::node::renew_works_past_expiry_until_fenced_and_a_resumed_owner_changes_nothing(&$provider.await).await
            });
        }

        #[test]
        fn store_t22_every_mutation_settles_to_one_effect() {
            $block_on(async { suite::settle::every_mutation_settles_to_one_effect(&$provider.await).await });
        }

        #[test]
        fn store_t24_no_identity_stands_in_for_another() {
            $block_on(async { suite::identity::no_identity_stands_in_for_another(&$provider.await).await });
        }

        #[test]
        fn store_t25_waiters_finish_without_hints_and_resync_follows_a_gap() {
            $block_on(async { suite::watch::waiters_finish_without_hints_and_resync_follows_a_gap(&$provider.await).await });
        }

        #[test]
        fn store_t26_an_exhausted_sequence_fails_the_operation_and_changes_nothing() {
            $block_on(async {
                suite::garbage::an_exhausted_sequence_fails_the_operation_and_changes_nothing(&$provider.await).await
            });
        }

        #[test]
        fn store_t27_sweep_removes_only_what_is_unlinked_and_past_its_retention() {
            $block_on(async {
                suite::garbage::sweep_removes_only_what_is_unlinked_and_past_its_retention(&$provider.await).await
            });
        }

        #[test]
        fn reserve_refuses_a_target_that_is_not_what_it_was_taken_for() {
            $block_on(async {
                suite::reserve::reserve_refuses_a_target_that_is_not_what_it_was_taken_for(&$provider.await).await
            });
        }

        #[test]
        fn reserve_needs_its_content() {
            $block_on(async { suite::reserve::reserve_needs_its_content(&$provider.await).await });
        }

        #[test]
        fn recovery_follows_a_lifecycle_that_ended() {
            $block_on(async { suite::creation::recovery_follows_a_lifecycle_that_ended(&$provider.await).await });
        }

        #[test]
        fn a_commit_compares_every_field_of_its_fence() {
            $block_on(async { suite::creation::a_commit_compares_every_field_of_its_fence(&$provider.await).await });
        }

        #[test]
        fn an_update_cannot_change_the_immutable_part() {
            $block_on(async { suite::node::an_update_cannot_change_the_immutable_part(&$provider.await).await });
        }

        #[test]
        fn a_listing_pages_through_all_nodes() {
            $block_on(async { suite::node::a_listing_pages_through_all_nodes(&$provider.await).await });
        }

        #[test]
        fn a_lease_grows_and_ends() {
            $block_on(async { suite::node::a_lease_grows_and_ends(&$provider.await).await });
        }

        #[test]
        fn a_membership_change_keeps_generations_and_capacity() {
            $block_on(async { suite::close::a_membership_change_keeps_generations_and_capacity(&$provider.await).await });
        }

        #[test]
        fn a_dead_owner_keeps_its_ready_rows_until_retired() {
            $block_on(async { suite::close::a_dead_owner_keeps_its_ready_rows_until_retired(&$provider.await).await });
        }

        #[test]
        fn a_shutdown_removes_its_own_rows() {
            $block_on(async { suite::close::a_shutdown_removes_its_own_rows(&$provider.await).await });
        }

        #[test]
        fn changes_cause_hints_in_their_scope() {
            $block_on(async { suite::watch::changes_cause_hints_in_their_scope(&$provider.await).await });
        }
    };
}

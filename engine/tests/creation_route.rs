//! Orders whose target cannot be reached, or is gone (CREATE-45, -48, -49, -54).

mod scene;

use std::time::Duration;

use scene::{Policy, Scene, client, server};

const C1: usize = 0;
const A: usize = 1;
const B: usize = 2;

const SECOND: Duration = Duration::from_secs(1);

fn cast() -> Scene {
    Scene::new(vec![client("c1"), server("a"), server("b").weight(0)])
}

#[test]
fn create_49_a_target_that_ended_while_its_reservation_was_on_its_way_back_is_given_up() {
    let mut scene = cast();
    scene.rule(C1, "reserve", Policy::Hold, 1);
    let call = scene.create_within(C1, "x", "accept", SECOND * 60);
    scene.drop_store(C1, "reserve");
    scene.set_weight(B, 100);
    // Its lease lives on for a while; the last re-issue arrives just before it runs out.
    scene.rule(C1, "reserve", Policy::HoldAnswer, usize::MAX);
    scene.kill(A);
    scene.advance_until(SECOND * 40, "reserved for a target that is gone", |scene| {
        let gone = !scene.node(C1).peers.iter().any(|(rid, ..)| rid.as_bytes().starts_with(b"a"));
        gone && !scene.held_calls().is_empty() && scene.is_creating("x")
    });
    scene.forget_rules();
    scene.release_store(C1, "reserve");
    scene.advance_until(SECOND * 8, "an answer", |scene| scene.answer(call).is_some());
    scene.expect_created(call);
}

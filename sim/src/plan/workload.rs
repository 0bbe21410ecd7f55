//! What applications do: contended creates, messages in flows, finds.

use super::Plan;
use crate::action::Action;
use crate::place::Seat;
use crate::script::{CreateScript, Ending, HandlerScript, Nested, Verdict};

pub(super) fn draw(plan: &mut Plan, calm: bool) {
    let count = plan.draw.between(1, 8);
    for n in 0..count {
        let stable_type = plan.draw.pick(&["counter", "counter", "counter", "ledger"]);
        plan.actors.push((format!("a{n}"), stable_type.to_owned()));
    }
    let early = plan.draw.between(1, count);
    for n in 0..early {
        let at = plan.draw.between(300_000, 1_500_000);
        contended(plan, n as usize, at, calm);
    }
    for _ in 0..plan.draw.between(0, 10) {
        let (n, at) = (plan.draw.below(count) as usize, plan.sometime());
        contended(plan, n, at, calm);
    }
    for _ in 0..plan.draw.between(1, 12) {
        flow(plan, calm);
    }
    for _ in 0..plan.draw.between(0, 8) {
        let (host, at) = (any_host(plan), plan.sometime());
        let actor = any_actor(plan).0;
        let timeout_ms = plan.draw.pick(&[5, 500, 3_000]);
        plan.at(at, Action::Find { host, actor, timeout_ms });
    }
}

pub(super) fn any_host(plan: &mut Plan) -> Seat {
    Seat(plan.draw.below(plan.cluster.hosts.len() as u64) as u8)
}

fn any_actor(plan: &mut Plan) -> (String, String) {
    let n = plan.draw.below(plan.actors.len() as u64) as usize;
    plan.actors[n].clone()
}

/// One or several hosts want the same Actor at about the same time.
fn contended(plan: &mut Plan, actor: usize, at: u64, calm: bool) {
    let callers = if plan.draw.percent(60) { plan.draw.between(2, 4) } else { 1 };
    let spread = plan.draw.pick(&[0, 500, 20_000, 400_000]);
    for _ in 0..callers {
        let host = any_host(plan);
        let at = at + plan.draw.between(0, spread);
        let (actor, mut stable_type) = plan.actors[actor].clone();
        match plan.draw.below(60) {
            0 => stable_type = "ledger".to_owned(),
            1 => stable_type = "unknown".to_owned(),
            _ => {}
        }
        let script = create_script(plan, calm);
        let timeout_ms = match plan.draw.below(10) {
            0 if !calm => plan.draw.between(5, 100) as u32,
            1 if !calm => plan.draw.between(100, 1_500) as u32,
            _ => plan.draw.between(2_000, 20_000) as u32,
        };
        let cancel_ms = plan.draw.percent(4).then(|| plan.draw.between(0, 300) as u32);
        let mesh = mesh_of(plan, host);
        let exclusive = plan.draw.percent(20);
        plan.at(
            at,
            Action::Create { host, actor, stable_type, exclusive, mesh, timeout_ms, script, cancel_ms },
        );
    }
}

/// A host in several Meshes has to say which one it means, and mostly does.
fn mesh_of(plan: &mut Plan, host: Seat) -> Option<String> {
    let nodes = &plan.cluster.hosts[usize::from(host.0)].nodes;
    let meshes: Vec<String> = nodes.iter().map(|node| node.mesh.clone()).collect();
    match plan.draw.below(20) {
        0 => None,
        1 => Some("gamma".to_owned()),
        _ if meshes.len() > 1 => Some(plan.draw.pick(&meshes)),
        _ => None,
    }
}

fn create_script(plan: &mut Plan, calm: bool) -> CreateScript {
    let verdict = if calm {
        [Verdict::Accept, Verdict::Decline, Verdict::Fail][plan.draw.weighted(&[90, 6, 4])]
    } else {
        [Verdict::Accept, Verdict::Decline, Verdict::Fail, Verdict::Panic, Verdict::Hang]
            [plan.draw.weighted(&[74, 10, 6, 5, 5])]
    };
    let takes_us = match plan.draw.below(10) {
        0 => plan.draw.between(500_000, 4_000_000),
        1 | 2 => plan.draw.between(20_000, 300_000),
        _ => plan.draw.between(50, 5_000),
    };
    let padding = if plan.draw.percent(3) { plan.draw.between(1_000, 20_000) as u32 } else { 0 };
    CreateScript { takes_us, verdict, padding }
}

/// Several messages of one host to one Actor.
fn flow(plan: &mut Plan, calm: bool) {
    let host = any_host(plan);
    let (actor, _) = any_actor(plan);
    let count = plan.draw.pick(&[1, 1, 3, 8, 20]);
    let gap = plan.draw.pick(&[0, 100, 3_000, 200_000]);
    let mut at = plan.sometime();
    let requests = plan.draw.percent(60);
    for _ in 0..count {
        let script = handler_script(plan, calm);
        let timeout_ms = match plan.draw.below(12) {
            0 if !calm => plan.draw.between(2, 100) as u32,
            // Long enough for everything queued before it.
            _ if calm => 20_000,
            _ => plan.draw.between(1_000, 12_000) as u32,
        };
        let request = if plan.draw.percent(10) { !requests } else { requests };
        let cancel_ms = plan.draw.percent(3).then(|| plan.draw.between(0, 200) as u32);
        plan.at(at, Action::Message { host, actor: actor.clone(), request, timeout_ms, script, cancel_ms });
        at += plan.draw.between(0, gap);
    }
}

fn handler_script(plan: &mut Plan, calm: bool) -> HandlerScript {
    let ending = if calm {
        Ending::Reply
    } else {
        [Ending::Reply, Ending::Fail, Ending::Panic, Ending::Hang, Ending::NoHandler, Ending::Undecodable]
            [plan.draw.weighted(&[88, 3, 3, 2, 2, 2])]
    };
    let takes_us = match plan.draw.below(20) {
        0 if !calm => plan.draw.between(300_000, 3_000_000),
        0..=2 => plan.draw.between(5_000, 50_000),
        _ => plan.draw.between(20, 2_000),
    };
    // Two Actors that wait for one another only end by their deadlines.
    let nested = (!calm && plan.draw.percent(6)).then(|| Nested {
        to: any_actor(plan).0,
        waits: plan.draw.percent(60),
        timeout_ms: plan.draw.between(20, 3_000) as u32,
    });
    HandlerScript { takes_us, ending, nested }
}

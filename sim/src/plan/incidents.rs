//! Faults that belong together: rare states that independent faults would seldom line up for.

use std::time::Duration;

use super::Plan;
use super::workload::any_host;
use crate::action::{Action, CrashPoint, StoreFault};
use crate::net::Notice;
use crate::place::Seat;
use crate::script::{CreateScript, Ending, HandlerScript, Verdict};

/// An incident: its name, how to draw it, how often.
type Incident = (&'static str, fn(&mut Plan, u64), u64);

const INCIDENTS: &[Incident] = &[
    ("late-order", late_order, 3),
    ("fenced-while-paused", fenced_while_paused, 6),
    ("creating-target-dies", creating_target_dies, 4),
    ("deaf-waiters", deaf_waiters, 2),
    ("lost-answer", lost_answer, 3),
    ("returning-rid", returning_rid, 2),
    ("shutdown-under-load", shutdown_under_load, 2),
    ("flood", flood, 1),
];

/// Names of all incidents.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    INCIDENTS.iter().map(|(name, _, _)| *name)
}

/// Draws one or two incidents, or the one of that name.
pub(super) fn draw(plan: &mut Plan, only: Option<&str>) {
    let fits = |name: &str| only.is_none_or(|only| only == name);
    let weights: Vec<u64> =
        INCIDENTS.iter().map(|(name, _, weight)| if fits(name) { *weight } else { 0 }).collect();
    let most = if only.is_some() { 1 } else { 2 };
    for _ in 0..plan.draw.between(1, most) {
        let which = plan.draw.weighted(&weights);
        let latest = (plan.chaos_ms * 1_000).saturating_sub(12_000_000).max(1_600_000);
        let at = plan.draw.between(1_500_000, latest);
        INCIDENTS[which].1(plan, at);
    }
}

fn brisk(plan: &Plan) -> bool {
    plan.cluster.settings.owner_lease_ttl < Duration::from_secs(10)
}

/// An Actor of its own for an incident, so that the workload does not get in the way.
fn fresh(plan: &mut Plan) -> String {
    let n = plan.actors.len();
    let id = format!("i{n}");
    plan.actors.push((id.clone(), "counter".to_owned()));
    id
}

fn pair(plan: &mut Plan) -> Option<(Seat, Seat)> {
    let count = plan.cluster.hosts.len() as u64;
    let a = any_host(plan);
    if count < 2 {
        return None;
    }
    let b = (u64::from(a.0) + 1 + plan.draw.below(count - 1)) % count;
    Some((a, Seat(b as u8)))
}

fn create(
    plan: &mut Plan,
    at: u64,
    host: Seat,
    actor: &str,
    timeout_ms: u32,
    takes_us: u64,
    verdict: Verdict,
) {
    let mesh = plan.cluster.hosts[usize::from(host.0)].nodes.first().map(|node| node.mesh.clone());
    let script = CreateScript { takes_us, verdict, padding: 0 };
    let action = Action::Create {
        host,
        actor: actor.to_owned(),
        stable_type: "counter".to_owned(),
        exclusive: false,
        mesh,
        timeout_ms,
        script,
        cancel_ms: None,
    };
    plan.at(at, action);
}

fn message(plan: &mut Plan, at: u64, host: Seat, actor: &str, request: bool, takes_us: u64) {
    let action = Action::Message {
        host,
        actor: actor.to_owned(),
        request,
        timeout_ms: 9_000,
        script: HandlerScript { takes_us, ..HandlerScript::default() },
        cancel_ms: None,
    };
    plan.at(at, action);
}

/// Only this host can take new Actors.
fn only_target(plan: &mut Plan, at: u64, target: Seat) {
    for host in 0..plan.cluster.hosts.len() as u8 {
        let weight = if Seat(host) == target { 100 } else { 0 };
        plan.at(at, Action::Weight { host: Seat(host), weight });
    }
}

fn any_server(plan: &mut Plan) -> Seat {
    let servers: Vec<Seat> = (0..plan.cluster.hosts.len() as u8)
        .map(Seat)
        .filter(|seat| {
            let nodes = &plan.cluster.hosts[usize::from(seat.0)].nodes;
            nodes.iter().any(|node| node.types.iter().any(|name| name == "counter"))
        })
        .collect();
    if servers.is_empty() { Seat(0) } else { plan.draw.pick(&servers) }
}

/// An order is held on its link past its deadline, and meets a later attempt of the same key when it arrives.
fn late_order(plan: &mut Plan, at: u64) {
    let target = any_server(plan);
    let Some((coordinator, other)) = pair(plan) else { return };
    if coordinator == target {
        return;
    }
    only_target(plan, at, target);
    let actor = fresh(plan);
    let start = at + 1_500_000;
    let for_ms = plan.draw.between(7_000, 12_000) as u32;
    plan.at(start, Action::Block { from: coordinator, to: target, for_ms });
    let timeout = plan.draw.between(200, 1_500) as u32;
    create(plan, start + 1_000, coordinator, &actor, timeout, 2_000, Verdict::Accept);
    let rival = if other == coordinator { target } else { other };
    let mut next = start + 2_000_000;
    while next < start + u64::from(for_ms) * 1_000 + 1_000_000 {
        create(plan, next, rival, &actor, 5_000, 900_000, Verdict::Decline);
        next += plan.draw.between(400_000, 1_000_000);
    }
}

/// A target stops in the middle of a creation for longer than its lease; others clean up; messages sent before
/// reach it only after it has learnt that it was fenced.
fn fenced_while_paused(plan: &mut Plan, at: u64) {
    let target = any_server(plan);
    let Some((a, b)) = pair(plan) else { return };
    let sender = if a == target { b } else { a };
    only_target(plan, at, target);
    let (slow, ready) = (fresh(plan), fresh(plan));
    let start = at + 1_500_000;
    create(plan, start, sender, &ready, 5_000, 300, Verdict::Accept);
    message(plan, start + 300_000, sender, &ready, true, 300);
    let verdict = plan.draw.pick(&[Verdict::Accept, Verdict::Accept, Verdict::Decline, Verdict::Fail]);
    // It ends while the process is stopped, or after it went on.
    let takes = if plan.draw.percent(70) { 900_000 } else { 12_000_000 };
    let begun = if takes < 1_000_000 { start + 80_000 } else { start + 400_000 };
    create(plan, begun, sender, &slow, 20_000, takes, verdict);
    let pause_ms =
        if brisk(plan) { plan.draw.between(8_500, 11_000) } else { plan.draw.between(20_500, 24_000) };
    if plan.draw.percent(70) {
        let for_ms = (pause_ms + plan.draw.between(100, 1_500)) as u32;
        plan.at(start + 800_000, Action::Block { from: sender, to: target, for_ms });
        for n in 0..3 {
            message(plan, start + 810_000 + n * 20_000, sender, &ready, n % 2 == 0, 300);
        }
    }
    let for_ms = pause_ms as u32;
    if plan.draw.percent(70) && takes < 1_000_000 {
        // It stops just when its result is on its way to the Store, where it arrives late or never.
        let late = plan.draw.between(pause_ms - 1_000, pause_ms - 50) as u32;
        let fault = match plan.draw.below(6) {
            0 => StoreFault::AppliesLater(late),
            1 => StoreFault::LostBefore,
            _ => StoreFault::Late(late),
        };
        for op in ["commit_created", "commit_rejected", "abort(Failed)"] {
            let (host, op) = (Some(target), op.to_owned());
            plan.at(begun, Action::StoreFault { host, op: Some(op.clone()), fault, count: 1 });
            let point = CrashPoint::Called(op);
            plan.at(begun, Action::PauseAt { host: target, point, skip: 0, for_ms });
        }
    } else {
        plan.at(start + 1_000_000, Action::Pause { host: target, for_ms });
    }
    // Somebody waits for the key and finds the dead lease.
    create(plan, start + 1_500_000, sender, &slow, 25_000, 300, Verdict::Accept);
    plan.chaos_ms = plan.chaos_ms.max((start + 1_000_000) / 1_000 + pause_ms + 3_000);
}

/// The target of several creations dies in the middle of them, everybody waits for them, the Store is slow when
/// its lease runs out.
fn creating_target_dies(plan: &mut Plan, at: u64) {
    let target = any_server(plan);
    only_target(plan, at, target);
    let start = at + 1_500_000;
    for _ in 0..plan.draw.between(1, 4) {
        let actor = fresh(plan);
        let callers = plan.draw.between(1, 3);
        for n in 0..callers {
            let (host, takes) = (any_host(plan), plan.draw.pick(&[100_000, 3_000_000]));
            let timeout = plan.draw.pick(&[1_000, 4_000, 25_000]);
            create(plan, start + n * 30_000, host, &actor, timeout, takes, Verdict::Accept);
        }
    }
    match plan.draw.below(3) {
        0 => {
            let op = plan.draw.pick(&["reserve", "commit_created"]);
            let point = CrashPoint::Applied(op.to_owned());
            plan.at(start, Action::Crash { host: target, point, skip: 0, restart_ms: Some(600) });
        }
        1 => {
            // It was recorded, and nobody was told.
            let actor = fresh(plan);
            let host = any_host(plan);
            let (op, verdict) = plan.draw.pick(&[
                ("commit_created", Verdict::Accept),
                ("commit_rejected", Verdict::Decline),
                ("abort(Failed)", Verdict::Fail),
            ]);
            create(plan, start + 5_000_000, host, &actor, 28_000, 300, verdict);
            let point = CrashPoint::Answered(op.to_owned(), 0);
            let crash = Action::Crash { host: target, point, skip: 0, restart_ms: Some(600) };
            plan.at(start + 4_900_000, crash);
            for host in 0..plan.cluster.hosts.len() as u8 {
                plan.at(start + 6_500_000, Action::Weight { host: Seat(host), weight: 100 });
            }
        }
        _ => {
            let at = start + plan.draw.between(20_000, 1_000_000);
            let (restart_ms, notice) = (Some(600), Notice::After(2));
            plan.at(at, Action::Kill { host: target, restart_ms, notice, flush: true });
        }
    }
    let ttl = if brisk(plan) { 6_000_000 } else { 15_000_000 };
    let slow = Action::StoreSlow { for_ms: 8_000, delay_ms: plan.draw.between(100, 900) as u32 };
    plan.at(start + ttl - 3_000_000, slow);
    for host in 0..plan.cluster.hosts.len() as u8 {
        plan.at(
            start + 500_000,
            Action::Weight { host: Seat(host), weight: if Seat(host) == target { 100 } else { 1 } },
        );
    }
    plan.chaos_ms = plan.chaos_ms.max((start + ttl) / 1_000 + 6_000);
}

/// Waiters of a slow creation get no hints.
fn deaf_waiters(plan: &mut Plan, at: u64) {
    let actor = fresh(plan);
    plan.at(at, Action::DropHints { for_ms: 20_000, resync: false });
    for _ in 0..3 {
        let (host, verdict) = (any_host(plan), plan.draw.pick(&[Verdict::Accept, Verdict::Decline]));
        let at = at + plan.draw.between(0, 50_000);
        create(plan, at, host, &actor, 8_000, 700_000, verdict);
    }
}

/// Answers of the writes of one creation are lost.
fn lost_answer(plan: &mut Plan, at: u64) {
    let actor = fresh(plan);
    let verdict = plan.draw.pick(&[Verdict::Accept, Verdict::Accept, Verdict::Decline, Verdict::Fail]);
    for op in ["reserve", "commit_created", "commit_rejected", "abort(Failed)"] {
        let late = plan.draw.between(20, 2_500) as u32;
        let fault = plan.draw.pick(&[
            StoreFault::LostAfter,
            StoreFault::LostBefore,
            StoreFault::AppliesLater(late),
            StoreFault::Silent(true),
            StoreFault::Silent(false),
        ]);
        if plan.draw.percent(70) {
            plan.at(at, Action::StoreFault { host: None, op: Some(op.to_owned()), fault, count: 1 });
        }
    }
    let host = any_host(plan);
    create(plan, at + 1_000, host, &actor, 9_000, 2_000, verdict);
    let host = any_host(plan);
    create(plan, at + 3_000, host, &actor, 9_000, 2_000, Verdict::Accept);
    message(plan, at + 700_000, host, &actor, true, 300);
}

/// A host with a fixed RID comes back before its peers have given its former connection up.
fn returning_rid(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    let seat = usize::from(host.0);
    let rid = format!("fixed-{seat}");
    for node in &mut plan.cluster.hosts[seat].nodes {
        node.rid = Some(rid.clone());
    }
    let back = if brisk(plan) { plan.draw.between(5_500, 8_000) } else { plan.draw.between(13_000, 16_500) };
    let flush = plan.draw.percent(50);
    plan.at(at, Action::Kill { host, restart_ms: Some(back as u32), notice: Notice::Never, flush });
    plan.chaos_ms = plan.chaos_ms.max(at / 1_000 + back + 4_000);
}

/// A host shuts down with handlers that take longer than it may.
fn shutdown_under_load(plan: &mut Plan, at: u64) {
    let target = any_server(plan);
    only_target(plan, at, target);
    let actor = fresh(plan);
    let start = at + 1_500_000;
    let host = any_host(plan);
    create(plan, start, host, &actor, 5_000, 300, Verdict::Accept);
    for n in 0..4 {
        let (host, takes) = (any_host(plan), plan.draw.pick(&[300, 400_000, 4_000_000]));
        message(plan, start + 300_000 + n * 10_000, host, &actor, true, takes);
    }
    if plan.draw.percent(40) {
        let host = any_host(plan);
        let script = HandlerScript { ending: Ending::Hang, ..HandlerScript::default() };
        let hang = Action::Message { host, actor, request: true, timeout_ms: 3_000, script, cancel_ms: None };
        plan.at(start + 350_000, hang);
    }
    let timeout_ms = plan.draw.pick(&[100, 2_000, 20_000]);
    plan.at(start + 400_000, Action::Shutdown { host: target, timeout_ms, restart_ms: Some(500) });
}

/// More messages than an Actor's lane takes while its handler is slow.
fn flood(plan: &mut Plan, at: u64) {
    if !plan.draw.percent(30) {
        return;
    }
    let (actor, host) = (fresh(plan), any_host(plan));
    create(plan, at, host, &actor, 5_000, 300, Verdict::Accept);
    message(plan, at + 600_000, host, &actor, false, 2_500_000);
    for n in 0..1_060 {
        message(plan, at + 610_000 + n * 20, host, &actor, false, 20);
    }
}

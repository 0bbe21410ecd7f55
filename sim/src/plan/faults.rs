//! What goes wrong: a subset of fault classes per seed, and a few faults of each.

use super::Plan;
use super::workload::any_host;
use crate::action::{Action, CrashPoint, StoreFault};
use crate::net::Notice;
use crate::place::Seat;

const CLASSES: &[(fn(&mut Plan, u64), u64)] = &[
    (kill, 3),
    (crash, 4),
    (pause, 3),
    (clock, 1),
    (break_links, 3),
    (one_way, 2),
    (block, 2),
    (partition, 2),
    (congest, 1),
    (store_fault, 5),
    (outage, 2),
    (slow, 1),
    (deaf, 1),
    (shutdown, 2),
    (weight, 1),
];

pub(super) fn draw(plan: &mut Plan) {
    // A swarm: each seed has its own mix, so that rare classes are not drowned by common ones.
    let mut weights: Vec<u64> =
        CLASSES.iter().map(|(_, weight)| if plan.draw.percent(45) { *weight } else { 0 }).collect();
    if weights.iter().all(|weight| *weight == 0) {
        let only = plan.draw.below(CLASSES.len() as u64) as usize;
        weights[only] = 1;
    }
    for _ in 0..plan.draw.between(1, 10) {
        let class = plan.draw.weighted(&weights);
        let at = plan.sometime();
        CLASSES[class].0(plan, at);
    }
}

fn restart(plan: &mut Plan) -> Option<u32> {
    match plan.draw.below(5) {
        0 => None,
        1 => Some(0),
        2 => Some(plan.draw.between(5_000, 20_000) as u32),
        _ => Some(plan.draw.between(50, 2_000) as u32),
    }
}

fn notice(plan: &mut Plan) -> Notice {
    if plan.draw.percent(35) { Notice::Never } else { Notice::After(plan.draw.between(0, 300) as u32) }
}

fn two_hosts(plan: &mut Plan) -> Option<(Seat, Seat)> {
    let count = plan.cluster.hosts.len() as u64;
    if count < 2 {
        return None;
    }
    let a = plan.draw.below(count);
    let b = (a + 1 + plan.draw.below(count - 1)) % count;
    Some((Seat(a as u8), Seat(b as u8)))
}

fn duration(plan: &mut Plan) -> u32 {
    match plan.draw.below(3) {
        0 => plan.draw.between(5, 200) as u32,
        1 => plan.draw.between(200, 4_000) as u32,
        _ => plan.draw.between(4_000, 25_000) as u32,
    }
}

fn kill(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    let (restart_ms, notice, flush) = (restart(plan), notice(plan), plan.draw.percent(60));
    plan.at(at, Action::Kill { host, restart_ms, notice, flush });
}

fn crash(plan: &mut Plan, at: u64) {
    const WRITES: &[&str] = &[
        "reserve",
        "commit_created",
        "commit_rejected",
        "abort(Failed)",
        "abort(NotExecuted)",
        "abort(Recovery)",
        "put_creation_content",
        "claim_node",
        "publish_descriptor",
        "acquire_lease",
        "renew_lease",
        "read_creation",
        "remove_owner_rows",
    ];
    let host = any_host(plan);
    let keep = plan.draw.between(0, 2) as u32;
    let op = plan.draw.pick(&WRITES[..8]);
    let point = match plan.draw.below(8) {
        7 => CrashPoint::Called(op.to_owned()),
        0 | 1 => CrashPoint::Applied(op.to_owned()),
        2 => CrashPoint::Applied(plan.draw.pick(WRITES).to_owned()),
        3 => CrashPoint::Answered(op.to_owned(), keep),
        4 => CrashPoint::Answered(plan.draw.pick(WRITES).to_owned(), keep),
        5 => CrashPoint::TurnEnded(keep),
        _ => {
            let names = ["CreateOrder", "CreateAnswer", "Actor", "Reply", "Hello", "Welcome"];
            CrashPoint::Received(plan.draw.pick(&names).to_owned(), keep)
        }
    };
    let skip = plan.draw.pick(&[0, 0, 0, 1, 3]);
    let restart_ms = restart(plan);
    // Armed early, or it would often find nothing left to do.
    let at = if plan.draw.percent(50) { plan.draw.between(0, 1_000_000) } else { at };
    if plan.draw.percent(25) {
        let for_ms = duration(plan);
        plan.at(at, Action::PauseAt { host, point, skip, for_ms });
    } else {
        plan.at(at, Action::Crash { host, point, skip, restart_ms });
    }
}

fn pause(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    let for_ms = match plan.draw.below(3) {
        0 => plan.draw.between(20, 3_000) as u32,
        1 => plan.draw.between(3_000, 12_000) as u32,
        _ => plan.draw.between(12_000, 24_000) as u32,
    };
    plan.at(at, Action::Pause { host, for_ms });
}

fn clock(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    if plan.draw.percent(50) {
        let rate = plan.draw.between(780_000, 1_300_000) as u32;
        plan.at(at, Action::ClockRate { host, rate });
    } else {
        let by_ms = plan.draw.pick(&[10, 1_000, 6_000, 20_000, 120_000]);
        plan.at(at, Action::ClockJump { host, by_ms });
    }
}

fn break_links(plan: &mut Plan, at: u64) {
    let Some((a, b)) = two_hosts(plan) else { return };
    let (notice_a, notice_b) = (notice(plan), notice(plan));
    plan.at(at, Action::Break { a, b, notice_a, notice_b });
}

fn one_way(plan: &mut Plan, at: u64) {
    let Some((from, to)) = two_hosts(plan) else { return };
    let notice = notice(plan);
    plan.at(at, Action::BreakOneWay { from, to, notice });
}

fn block(plan: &mut Plan, at: u64) {
    let Some((from, to)) = two_hosts(plan) else { return };
    let for_ms = duration(plan);
    plan.at(at, Action::Block { from, to, for_ms });
}

fn partition(plan: &mut Plan, at: u64) {
    let count = plan.cluster.hosts.len();
    let group: Vec<Seat> = (0..count as u8).map(Seat).filter(|_| plan.draw.percent(50)).collect();
    if group.is_empty() || group.len() == count {
        return;
    }
    let (for_ms, cut) = (duration(plan), plan.draw.percent(50));
    plan.at(at, Action::Partition { group, for_ms, cut });
}

fn congest(plan: &mut Plan, at: u64) {
    let Some((from, to)) = two_hosts(plan) else { return };
    let for_ms = plan.draw.between(20, 3_000) as u32;
    plan.at(at, Action::Congest { from, to, for_ms });
}

fn store_fault(plan: &mut Plan, at: u64) {
    const OPS: &[&str] = &[
        "reserve",
        "reserve",
        "commit_created",
        "commit_created",
        "commit_rejected",
        "abort(Failed)",
        "abort(NotExecuted)",
        "abort(Recovery)",
        "renew_lease",
        "acquire_lease",
        "read_creation",
        "read_authority",
        "list_descriptors",
        "publish_descriptor",
        "update_descriptor",
        "claim_node",
        "put_creation_content",
        "get_creation_content",
        "scan_own_rows",
        "remove_owner_rows",
        "remove_descriptor",
        "release_lease",
    ];
    let host = plan.draw.percent(40).then(|| any_host(plan));
    let op = plan.draw.percent(80).then(|| plan.draw.pick(OPS).to_owned());
    let fault = match plan.draw.below(7) {
        0 => StoreFault::FailBefore,
        1 => StoreFault::LostBefore,
        2 | 3 => StoreFault::LostAfter,
        4 => StoreFault::AppliesLater(plan.draw.between(5, 4_000) as u32),
        5 => StoreFault::Silent(plan.draw.percent(60)),
        _ if plan.draw.percent(50) => StoreFault::Slow(plan.draw.between(50, 5_000) as u32),
        _ => StoreFault::Late(plan.draw.between(50, 5_000) as u32),
    };
    let count = plan.draw.pick(&[1, 1, 2, 5]);
    // Startup, too, meets a failing Store.
    let at = if plan.draw.percent(30) { plan.draw.between(0, 1_500_000) } else { at };
    plan.at(at, Action::StoreFault { host, op, fault, count });
}

fn outage(plan: &mut Plan, at: u64) {
    let host = plan.draw.percent(60).then(|| any_host(plan));
    let for_ms = duration(plan);
    plan.at(at, Action::StoreOutage { host, for_ms });
}

fn slow(plan: &mut Plan, at: u64) {
    let (for_ms, delay_ms) = (duration(plan), plan.draw.between(20, 4_000) as u32);
    plan.at(at, Action::StoreSlow { for_ms, delay_ms });
}

fn deaf(plan: &mut Plan, at: u64) {
    let (for_ms, resync) = (duration(plan), plan.draw.percent(50));
    plan.at(at, Action::DropHints { for_ms, resync });
}

fn shutdown(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    let timeout_ms = plan.draw.pick(&[1, 300, 5_000, 30_000]);
    let restart_ms = restart(plan);
    plan.at(at, Action::Shutdown { host, timeout_ms, restart_ms });
}

fn weight(plan: &mut Plan, at: u64) {
    let host = any_host(plan);
    let weight = plan.draw.pick(&[0, 0, 1, 100, 10_000]);
    plan.at(at, Action::Weight { host, weight });
}

//! Who takes part.

use std::time::Duration;

use spotmesh::model::ObjectRole;
use spotmesh::model::limits::Settings;

use crate::clock::RATE_ONE;
use crate::cluster::{Cluster, HostSpec, NodeSpec, StoreSpec};
use crate::draw::Draw;
use crate::net::NetworkSpec;

pub(super) fn draw(draw: &mut Draw, calm: bool) -> Cluster {
    let count = [1, 2, 3, 4, 5][draw.weighted(&[6, 24, 42, 14, 14])];
    let tight = draw.percent(25);
    let skewed = !calm && draw.percent(25);
    let two_meshes = draw.percent(8);
    let hosts = (0..count).map(|index| host(draw, index, tight, skewed, two_meshes)).collect();
    Cluster { hosts, network: network(draw), store: store(draw), settings: settings(draw) }
}

fn host(draw: &mut Draw, index: u64, tight: bool, skewed: bool, two_meshes: bool) -> HostSpec {
    let mut node = NodeSpec::default();
    if index > 0 && draw.percent(25) {
        node.role = ObjectRole::Client;
    }
    if index > 0 && draw.percent(15) {
        node.types.clear();
    }
    if draw.percent(60) {
        node.types.push("ledger".to_owned());
    }
    if draw.percent(20) {
        node.rid = Some(format!("fixed-{index}"));
    }
    if tight {
        node.actor_limit = draw.pick(&[0, 1, 2, 3, 5]);
        node.pending_limit = draw.pick(&[1, 1, 2, 128]);
    }
    if draw.percent(15) {
        node.weight = draw.pick(&[0, 1, 10_000]);
    }
    let mut nodes = vec![node];
    if two_meshes {
        let beta = NodeSpec { mesh: "beta".to_owned(), ..NodeSpec::default() };
        match draw.below(3) {
            0 => nodes.push(beta),
            1 if index > 0 => nodes = vec![beta],
            _ => {}
        }
    }
    // Slower than two thirds of the Store's clock would break the lease's margin, faster only costs time.
    let clock_rate = if skewed { draw.between(780_000, 1_300_000) as u32 } else { RATE_ONE };
    let start_ms = if draw.percent(10) { draw.between(1_000, 4_000) } else { draw.between(0, 200) };
    HostSpec { nodes, clock_rate, start_ms, same_endpoint: draw.percent(50) }
}

fn network(draw: &mut Draw) -> NetworkSpec {
    let base = NetworkSpec::default();
    match draw.below(4) {
        0 => NetworkSpec { latency_us: (20, 120), ..base },
        1 => NetworkSpec { latency_us: (5_000, 40_000), dial_us: (10_000, 90_000), ..base },
        2 => NetworkSpec { spike_permille: 30, spike_us: 80_000, ..base },
        _ => base,
    }
}

fn store(draw: &mut Draw) -> StoreSpec {
    let base = StoreSpec::default();
    match draw.below(4) {
        0 => StoreSpec { way_us: (20, 60), ..base },
        1 => StoreSpec { way_us: (2_000, 15_000), hint_us: (1_000, 60_000), ..base },
        2 => StoreSpec { spike_permille: 20, spike_us: 400_000, ..base },
        _ => base,
    }
}

fn settings(draw: &mut Draw) -> Settings {
    let mut settings = Settings::default();
    if draw.percent(55) {
        // A quicker lease lets more of its life fit into a run.
        settings.owner_lease_ttl = Duration::from_secs(6);
        settings.owner_lease_renew_interval = Duration::from_secs(2);
        settings.owner_lease_renew_timeout = Duration::from_secs(1);
        settings.owner_lease_fencing_margin = Duration::from_secs(2);
        settings.recovery_scan_interval = Duration::from_secs(2);
        settings.store_call_timeout = Duration::from_secs(1);
    }
    if draw.percent(20) {
        settings.route_cache_max_age = Duration::ZERO;
    }
    settings
}

//! Startup of one host in five steps, and its undo (spec 02 §7, spec 09 §2).

use std::collections::VecDeque;
use std::time::Duration;

use spotmesh::config::{HostConfig, ManualIntent, NodeConfig, RidChoice, TypeRegistration};
use spotmesh::event::Event;
use spotmesh::host::Host;
use spotmesh::input::{CallId, Command, CreateActor, CreateMode, Input};
use spotmesh::link::{NodeIndex, TransportEvent};
use spotmesh::model::{
    ActorId, ErrorKind, HostState, Instant, MeshName, ObjectKey, ObjectKind, ObjectRole, Prefix,
    RelocationPolicy, Rid, RoutingMode, SpotId, StableType, StoreTime,
};
use spotmesh::output::{Answer, Output};
use spotmesh::store::{
    AuthorityRead, ConflictReason, LeaseState, ListDescriptors, ReadAuthority, ReadLease, StoreError,
    StoreReply, StoreRequest, StoreResult,
};
use spotmesh_store_memory::{State, apply};

/// A host, its Store, and what happened so far.
struct Stage {
    host: Host,
    state: State,
    now: Instant,
    /// Store operations and listener commands in order.
    log: Vec<String>,
    requests: Vec<StoreRequest>,
    events: Vec<Event>,
    answers: Vec<Answer>,
    bind_fails: bool,
    /// Answers that replace the true one, by operation; the request is not applied.
    refusals: Vec<(&'static str, StoreError)>,
    /// Stops before this operation is carried out.
    stop_before: Option<&'static str>,
    stopped: VecDeque<Output>,
}

impl Stage {
    fn new(config: HostConfig, seed: u8) -> Self {
        Self::on(config, seed, State::new())
    }

    fn on(config: HostConfig, seed: u8, state: State) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let host = Host::new(config, [seed; 32], now).expect("a legal configuration");
        Self {
            host,
            state,
            now,
            log: Vec::new(),
            requests: Vec::new(),
            events: Vec::new(),
            answers: Vec::new(),
            bind_fails: false,
            refusals: Vec::new(),
            stop_before: None,
            stopped: VecDeque::new(),
        }
    }

    fn refusing(mut self, operation: &'static str, error: StoreError) -> Self {
        self.refusals.push((operation, error));
        self
    }

    fn store_now(&self) -> StoreTime {
        StoreTime::from_micros(5_000_000) + self.now.since(Instant::ZERO)
    }

    fn ask(&mut self, request: impl Into<StoreRequest>) -> StoreResult {
        let now = self.store_now();
        apply(&mut self.state, now, &request.into())
    }

    /// Carries out everything that is due now.
    fn run(&mut self) {
        let mut outputs = std::mem::take(&mut self.stopped);
        loop {
            while let Some(output) = self.host.poll_output() {
                outputs.push_back(output);
            }
            let Some(output) = outputs.pop_front() else { return };
            let input = match output {
                Output::CallStore { call, request, .. } => {
                    if self.stop_before == Some(request.name()) {
                        self.stop_before = None;
                        self.stopped.push_back(Output::CallStore { call, request, timeout: Duration::ZERO });
                        self.stopped.extend(outputs);
                        return;
                    }
                    self.log.push(request.name().to_owned());
                    let refused = self.refusals.iter().find(|(name, _)| *name == request.name());
                    let result = match refused {
                        Some((_, error)) => Err(error.clone()),
                        None => self.ask((*request).clone()),
                    };
                    self.requests.push(*request);
                    Input::StoreAnswered { call, result }
                }
                Output::Bind(node) => {
                    self.log.push("bind".to_owned());
                    let reason = "address in use".to_owned();
                    Input::Transport(if self.bind_fails {
                        TransportEvent::BindFailed { node, reason }
                    } else {
                        TransportEvent::Bound { node, endpoint: "stage://here".to_owned() }
                    })
                }
                Output::Unbind(_) => {
                    self.log.push("unbind".to_owned());
                    continue;
                }
                Output::Record(event) => {
                    self.events.push(event);
                    continue;
                }
                Output::Answer { answer, .. } => {
                    self.answers.push(answer);
                    continue;
                }
                _ => continue,
            };
            self.host.handle(input, self.now);
            self.host.check_invariants().unwrap();
        }
    }

    fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        self.run();
        while let Some((due, _)) = self.host.poll_timeout().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            self.host.handle_timeout(self.now);
            self.run();
        }
        self.now = until;
    }

    fn times(&self, operation: &str) -> usize {
        self.log.iter().filter(|entry| *entry == operation).count()
    }

    fn failure(&self) -> Option<ErrorKind> {
        self.events.iter().find_map(|event| match event {
            Event::StartupFailed(error) => Some(error.kind()),
            _ => None,
        })
    }

    fn listed(&mut self) -> Vec<std::sync::Arc<spotmesh::store::Descriptor>> {
        match self.ask(ListDescriptors { mesh: None, token: None, limit: 100 }) {
            Ok(StoreReply::Descriptors(page)) => {
                page.entries.into_iter().map(|entry| entry.descriptor).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn spot_exists(&mut self, spot: &SpotId) -> bool {
        match self.ask(ReadAuthority { key: ObjectKey::Spot(spot.clone()) }) {
            Ok(StoreReply::Authority(read)) => matches!(read, AuthorityRead::Found(_)),
            other => panic!("{other:?}"),
        }
    }
}

fn mesh() -> MeshName {
    MeshName::new("alpha").unwrap()
}

fn node(role: ObjectRole) -> NodeConfig {
    NodeConfig::new(mesh(), role)
}

fn host(node: NodeConfig) -> HostConfig {
    HostConfig::new(vec![node])
}

fn actor_type(name: &str) -> TypeRegistration {
    TypeRegistration {
        kind: ObjectKind::Actor,
        stable_type: StableType::new(name).unwrap(),
        policy: RelocationPolicy::DisableRelocation,
        limit: 0,
    }
}

fn with_prefix(prefix: &str, role: ObjectRole) -> NodeConfig {
    let mut node = node(role);
    node.rid = RidChoice::Automatic { prefix: Prefix::new(prefix).unwrap() };
    node
}

fn fixed(rid: &str) -> NodeConfig {
    let mut node = node(ObjectRole::Server);
    node.rid = RidChoice::Fixed(Rid::new(rid).unwrap());
    node
}

fn create() -> Input {
    let command = Command::CreateActor(CreateActor {
        id: ActorId::new("x").unwrap(),
        stable_type: StableType::new("counter").unwrap(),
        mode: CreateMode::GetOrCreate,
        mesh: None,
        request: bytes::Bytes::new(),
        timeout: Duration::from_secs(1),
    });
    Input::Called { call: CallId(1), from: None, command }
}

#[test]
fn host_t1_startup_order_and_the_entry_spot_stays_hidden_until_published() {
    let mut stage = Stage::new(host(node(ObjectRole::Server)), 1);
    stage.stop_before = Some("publish_descriptor");
    stage.run();
    assert_eq!(stage.log, ["acquire_lease", "claim_node", "bind"]);
    let entry = stage.host.nodes().next().unwrap().entry_spot.expect("an Object Server has an Entry Spot");
    assert!(stage.listed().is_empty(), "claimed, not published");
    assert!(!stage.spot_exists(&entry), "the Entry Spot is in no resolver yet");
    assert_eq!(stage.host.state(), HostState::Preparing);

    stage.stop_before = Some("update_descriptor");
    stage.run();
    let before = stage.listed();
    assert_eq!(before[0].host_state, HostState::Preparing, "published, not yet Serving (NODE-60)");
    assert_eq!(stage.host.state(), HostState::Preparing);

    stage.run();
    assert_eq!(
        stage.log[..6],
        [
            "acquire_lease",
            "claim_node",
            "bind",
            "publish_descriptor",
            "list_descriptors",
            "update_descriptor"
        ]
    );
    assert_eq!(stage.host.state(), HostState::Serving);
    let after = stage.listed();
    // No Entry Spot type is registered, and there is one all the same.
    assert_eq!(after[0].entry_spot_id.as_ref(), Some(&entry));
    assert_eq!(after[0].host_state, HostState::Serving);
    assert!(stage.spot_exists(&entry));

    let mut client = Stage::new(host(node(ObjectRole::Client)), 2);
    client.advance(Duration::from_secs(1));
    assert_eq!(client.host.state(), HostState::Serving);
    assert_eq!(client.listed()[0].entry_spot_id, None);
}

#[test]
fn host_t2_an_object_role_without_a_store_does_not_start() {
    for role in [ObjectRole::Client, ObjectRole::Server] {
        let mut config = host(node(role));
        config.has_store = false;
        let error = Host::new(config, [1; 32], Instant::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{role:?}");
        // Host::new gave no Host: there is nothing that could manage objects.
    }
}

#[test]
fn store_t1_roles_without_a_store_fail_and_none_in_manual_mode_starts_without_one() {
    for role in [ObjectRole::Client, ObjectRole::Server] {
        let mut config = host(node(role));
        config.has_store = false;
        assert_eq!(Host::new(config, [1; 32], Instant::ZERO).unwrap_err().kind(), ErrorKind::Configuration);
    }
    let mut manual = node(ObjectRole::None);
    manual.routing = RoutingMode::Manual;
    manual.manual_intents = vec![ManualIntent { endpoint: "stage://there".to_owned(), expected_rid: None }];
    let mut config = host(manual);
    config.has_store = false;
    let mut stage = Stage::new(config, 1);
    stage.advance(Duration::from_secs(30));
    assert_eq!(stage.host.state(), HostState::Serving);
    assert!(stage.requests.is_empty(), "no Store call, not even to a hidden one");
    stage.host.handle(create(), stage.now);
    stage.run();
    assert!(matches!(&stage.answers[..], [Answer::Failed(e)] if e.kind() == ErrorKind::NotConfigured));
}

#[test]
fn host_t3_roles_expose_exactly_their_managers_factories_and_placement() {
    assert_eq!(ObjectRole::default(), ObjectRole::None, "unset is None");
    for role in [ObjectRole::None, ObjectRole::Client] {
        let mut config = node(role);
        config.types.push(actor_type("counter"));
        let error = Host::new(host(config), [1; 32], Instant::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "factories on {role:?}");
    }
    for (role, expected) in [
        (ObjectRole::None, ErrorKind::NotConfigured), // no manager
        (ObjectRole::Client, ErrorKind::NotFound),    // a manager; nobody who could own the object
    ] {
        let mut stage = Stage::new(host(node(role)), 1);
        stage.advance(Duration::from_secs(2));
        let listed = stage.listed();
        assert_eq!(
            (listed[0].role, &listed[0].entry_spot_id, listed[0].capabilities.len()),
            (role, &None, 0)
        );
        stage.host.handle(create(), stage.now);
        stage.run();
        assert!(
            matches!(&stage.answers[..], [Answer::Failed(e)] if e.kind() == expected),
            "{:?}",
            stage.answers
        );
    }
    let mut server = node(ObjectRole::Server);
    server.types.push(actor_type("counter"));
    let mut stage = Stage::new(host(server), 1);
    stage.advance(Duration::from_secs(2));
    let listed = stage.listed();
    assert!(listed[0].entry_spot_id.is_some());
    assert_eq!(listed[0].capabilities[0].stable_type.as_str(), "counter");
    stage.host.handle(create(), stage.now);
    stage.run();
    assert_eq!(stage.times("reserve"), 1, "it is its own placement candidate");
}

/// Two hosts of one Store: the second wants the first one's fixed RID.
fn conflict() -> (Stage, Stage) {
    let mut first = Stage::new(host(fixed("node")), 1);
    first.advance(Duration::from_secs(1));
    assert_eq!(first.host.state(), HostState::Serving);
    let mut second = Stage::on(host(fixed("node")), 2, first.state.clone());
    second.now = first.now;
    second.advance(Duration::from_secs(1));
    (first, second)
}

#[test]
fn host_t4_conflicts_fail_at_once_and_replacements_are_new() {
    let (mut first, mut second) = conflict();
    assert_eq!(second.failure(), Some(ErrorKind::Configuration));
    assert_eq!(second.host.state(), HostState::Error);
    assert_eq!(second.times("claim_node"), 1, "no second claim");
    assert_eq!(second.listed(), first.listed(), "the live descriptor is untouched");

    let entry_taken = StoreError::conflict(ConflictReason::EntrySpotIdInUse);
    let mut third = Stage::new(host(node(ObjectRole::Server)), 3).refusing("claim_node", entry_taken);
    third.advance(Duration::from_secs(60));
    assert_eq!((third.failure(), third.times("claim_node")), (Some(ErrorKind::Configuration), 1));

    let views: Vec<_> = [4, 5]
        .map(|seed| Stage::new(host(node(ObjectRole::Server)), seed).host.nodes().next().unwrap())
        .into_iter()
        .collect();
    assert_ne!(views[0].rid, views[1].rid);
    assert_ne!(views[0].entry_spot, views[1].entry_spot);
    assert_ne!(views[0].lifecycle, views[1].lifecycle);
}

fn is_uuid_v4(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        && groups[2].starts_with('4')
        && groups[3].starts_with(['8', '9', 'a', 'b'])
}

#[test]
fn node_t5_an_automatic_rid_is_prefix_and_uuid_and_a_conflict_is_final() {
    let stage = Stage::new(host(with_prefix("game.eu_1", ObjectRole::Server)), 7);
    let rid = stage.host.nodes().next().unwrap().rid.to_string();
    let uuid = rid.strip_prefix("game.eu_1-").expect("the prefix");
    assert!(is_uuid_v4(uuid), "{uuid}");

    let taken = StoreError::conflict(ConflictReason::RidInUse);
    let mut stage =
        Stage::new(host(with_prefix("game", ObjectRole::Server)), 7).refusing("claim_node", taken);
    stage.advance(Duration::from_secs(60));
    assert_eq!(stage.failure(), Some(ErrorKind::Configuration));
    assert_eq!(stage.times("claim_node"), 1, "no second RID is tried");
}

#[test]
fn node_t6_a_replacement_lifecycle_has_a_new_rid() {
    let mut first = Stage::new(host(node(ObjectRole::Server)), 1);
    first.advance(Duration::from_secs(1));
    let mut second = Stage::on(host(node(ObjectRole::Server)), 2, first.state.clone());
    second.now = first.now + Duration::from_secs(60);
    second.advance(Duration::from_secs(1));
    assert_eq!(second.host.state(), HostState::Serving);
    assert_ne!(first.host.nodes().next().unwrap().rid, second.host.nodes().next().unwrap().rid);
}

#[test]
fn node_t7_object_servers_publish_an_entry_spot_id_and_other_roles_none() {
    for role in [ObjectRole::None, ObjectRole::Client, ObjectRole::Server] {
        // No Entry Spot type can be registered in this version: every server uses the built-in one.
        let mut stage = Stage::new(host(node(role)), 1);
        stage.advance(Duration::from_secs(1));
        assert_eq!(stage.listed()[0].entry_spot_id.is_some(), role == ObjectRole::Server, "{role:?}");
    }
}

#[test]
fn node_t8_the_entry_spot_id_has_the_nodes_prefix_and_its_own_uuid() {
    let mut stage = Stage::new(host(with_prefix("game", ObjectRole::Server)), 1);
    stage.advance(Duration::from_secs(1));
    let view = stage.host.nodes().next().unwrap();
    let listed = stage.listed();
    assert_eq!(listed[0].lifecycle, view.lifecycle);
    let entry = listed[0].entry_spot_id.clone().unwrap();
    assert_eq!(view.entry_spot, Some(entry.clone()), "the descriptor maps lifecycle to Entry Spot");
    let uuid = entry.as_str().strip_prefix("game-entry-").expect("the node's prefix");
    assert!(is_uuid_v4(uuid));
    assert!(!view.rid.to_string().ends_with(uuid), "a UUID of its own");
    // Under a fixed RID the default prefix is used (NODE-19).
    let fixed = Stage::new(host(fixed("node")), 1);
    let entry = fixed.host.nodes().next().unwrap().entry_spot.unwrap();
    assert!(entry.as_str().starts_with("mesh-entry-"));
}

#[test]
fn node_t9_a_replacement_has_a_new_entry_spot_id_and_a_conflict_fails_at_once() {
    let ids =
        [1, 2].map(|seed| Stage::new(host(fixed("node")), seed).host.nodes().next().unwrap().entry_spot);
    assert_ne!(ids[0], ids[1]);
    // A real collision: the id is taken as a Spot key by a claim of another node.
    let mut first = Stage::new(host(node(ObjectRole::Server)), 1);
    first.advance(Duration::from_secs(1));
    let mut twin = node(ObjectRole::Server);
    twin.mesh = MeshName::new("beta").unwrap();
    // The same seed draws the same Entry Spot id; the RIDs are in different Meshes and do not collide.
    let mut second = Stage::on(host(twin), 1, first.state.clone());
    second.refusals.clear();
    second.now = first.now;
    second.run();
    // An equal seed also means an equal OwnerId: the Store takes it for the same host run. So ask it directly.
    let claim = second.requests.iter().find_map(|request| match request {
        StoreRequest::ClaimNode(claim) => Some(claim.clone()),
        _ => None,
    });
    let mut claim = claim.expect("it claimed");
    claim.rid = Rid::new("other").unwrap();
    claim.lifecycle = spotmesh::model::LifecycleGeneration::from_u64(77).unwrap();
    let result = first.ask(claim);
    assert_eq!(result.unwrap_err().conflict_reason(), Some(ConflictReason::EntrySpotIdInUse));
    let taken = StoreError::conflict(ConflictReason::EntrySpotIdInUse);
    let mut third = Stage::new(host(node(ObjectRole::Server)), 3).refusing("claim_node", taken);
    third.advance(Duration::from_secs(60));
    assert_eq!((third.failure(), third.times("claim_node")), (Some(ErrorKind::Configuration), 1));
}

#[test]
fn node_t34_a_failing_step_leaves_nothing_behind() {
    // Step 1 fails before there is a host.
    let mut twice = host(node(ObjectRole::Server));
    twice.nodes.push(node(ObjectRole::Client));
    assert_eq!(Host::new(twice, [1; 32], Instant::ZERO).unwrap_err().kind(), ErrorKind::Configuration);

    let mismatch = || StoreError::conflict(ConflictReason::LifecycleMismatch);
    let second = |mut stage: Stage| {
        // A second node whose step fails: what the first one acquired must go as well.
        stage.advance(Duration::from_secs(30));
        stage
    };
    let two = || {
        let mut other = node(ObjectRole::Client);
        other.mesh = MeshName::new("beta").unwrap();
        let mut config = host(node(ObjectRole::Server));
        config.nodes.push(other);
        config
    };
    let cases: [(&str, Stage); 4] = [
        (
            "2 claim",
            Stage::new(two(), 1).refusing("claim_node", StoreError::conflict(ConflictReason::RidInUse)),
        ),
        ("3 bind", {
            let mut stage = Stage::new(two(), 2);
            stage.bind_fails = true;
            stage
        }),
        ("4 publish", Stage::new(two(), 3).refusing("publish_descriptor", mismatch())),
        ("5 serve", Stage::new(two(), 4).refusing("update_descriptor", mismatch())),
    ];
    for (step, stage) in cases {
        let mut stage = second(stage);
        assert_eq!(stage.host.state(), HostState::Error, "step {step}");
        assert!(stage.failure().is_some(), "step {step}: the failure is reported");
        assert!(stage.listed().is_empty(), "step {step}: a descriptor is left");
        for view in stage.host.nodes().collect::<Vec<_>>() {
            if let Some(entry) = &view.entry_spot {
                assert!(!stage.spot_exists(entry), "step {step}: an Entry Spot is left");
            }
            // A claim left behind would be refused to another owner.
            let lease = match stage.ask(spotmesh::store::AcquireLease {
                owner: spotmesh::model::OwnerId::new(u128::from(view.index.0) + 9).unwrap(),
                ttl: Duration::from_secs(15),
            }) {
                Ok(StoreReply::Granted(grant)) => grant.lease,
                other => panic!("{other:?}"),
            };
            let claim = spotmesh::store::ClaimNode {
                mesh: view.mesh.clone(),
                rid: view.rid.clone(),
                lifecycle: spotmesh::model::LifecycleGeneration::from_u64(99).unwrap(),
                role: ObjectRole::Client,
                limits: spotmesh::store::NodeLimits::default(),
                entry_spot_id: None,
                lease,
            };
            stage.ask(claim).unwrap_or_else(|error| panic!("step {step}: a claim is left: {error}"));
        }
        let leases: Vec<_> = stage
            .requests
            .iter()
            .filter_map(|request| match request {
                StoreRequest::ReleaseLease(release) => Some(release.lease),
                _ => None,
            })
            .collect();
        assert_eq!(leases.len(), 1, "step {step}: the lease is released once");
        match stage.ask(ReadLease { lease: leases[0] }) {
            Ok(StoreReply::Lease(view)) => assert_eq!(view.value.state, LeaseState::Released, "step {step}"),
            other => panic!("step {step}: {other:?}"),
        }
        let opened = if stage.bind_fails { 0 } else { stage.times("bind") };
        assert_eq!(stage.times("unbind"), opened, "step {step}: every listener is closed");
        assert_eq!(stage.host.poll_timeout(), None, "step {step}: a timer is left");
        assert!(stage.host.is_quiet());
    }
}

#[test]
fn host_t27_a_store_outage_at_startup_keeps_the_host_preparing_and_a_fenced_lease_ends_it() {
    let mut stage =
        Stage::new(host(node(ObjectRole::Server)), 1).refusing("acquire_lease", StoreError::Unavailable);
    stage.advance(Duration::from_secs(60));
    assert_eq!(stage.host.state(), HostState::Preparing);
    assert_eq!((stage.times("bind"), stage.times("claim_node")), (0, 0), "nothing bound or published");
    assert!(stage.times("acquire_lease") >= 11, "it claims again every interval");
    assert!(stage.requests.windows(2).all(|pair| pair[0] == pair[1]), "with the same OwnerId");
    stage.refusals.clear();
    stage.advance(Duration::from_secs(6));
    assert_eq!(stage.host.state(), HostState::Serving);

    // Somebody acts on the lease while the host cannot reach the Store.
    stage.refusals.push(("renew_lease", StoreError::LeaseLost));
    let before = stage.requests.len();
    stage.advance(Duration::from_secs(20));
    assert_eq!(stage.host.state(), HostState::Error);
    let lost =
        stage.requests[before..].iter().position(|r| matches!(r, StoreRequest::RenewLease(_))).unwrap();
    let writes: Vec<_> = stage.requests[before + lost + 1..]
        .iter()
        .filter(|request| request.mutates())
        .map(|r| r.name())
        .collect();
    assert!(writes.is_empty(), "no Store write after the loss: {writes:?}");
    assert_eq!(NodeIndex(0), stage.host.nodes().next().unwrap().index);
}

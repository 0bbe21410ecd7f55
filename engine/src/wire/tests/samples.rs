//! Messages to encode: one fixed of every variant, and any.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::model::{
    ActorId, AuthorityOwnerGeneration, ChannelName, Correlation, DescriptorRevision, ErrorKind, HostState,
    LeaseGeneration, LeaseRef, LifecycleGeneration, MeshName, NodeFence, ObjectGeneration, ObjectKey,
    ObjectKind, ObjectRole, OperationId, OperationIdentity, OwnerId, PacketName, ReservationId, Rid,
    SecurityIdentity, SpotId, SpotKind, StableType, StoreTime, StoreVersion, Weight,
};
use crate::store::ReservationFence;
use crate::wire::{
    ActorMessage, CallKind, CreateAnswer, CreateOrder, CreateVerdict, Hello, Message, Metadata, NodeUpdate,
    PayloadCodec, Refusal, Reply, StaleRoute, WIRE_VERSION,
};

pub(super) fn may_have_body(message: &Message) -> bool {
    matches!(message, Message::Actor(_) | Message::Reply(_) | Message::CreateAnswer(_))
}

fn lifecycle(value: u64) -> LifecycleGeneration {
    LifecycleGeneration::from_u64(value).unwrap()
}

fn lease() -> LeaseRef {
    LeaseRef { owner: OwnerId::new(0x0123).unwrap(), generation: LeaseGeneration::new(9).unwrap() }
}

fn operation() -> OperationIdentity {
    OperationIdentity {
        source_rid: Rid::new(b"a").unwrap(),
        source_lifecycle: lifecycle(7),
        operation: OperationId::new(0xfeed).unwrap(),
    }
}

fn channels() -> BTreeMap<ChannelName, Weight> {
    [(ChannelName::new("chat").unwrap(), Weight::DEFAULT)].into()
}

fn actor_message() -> ActorMessage {
    ActorMessage {
        target: ActorId::new("player-1").unwrap(),
        lifecycle: lifecycle(7),
        lease: lease(),
        kind: CallKind::Send,
        remaining: Duration::from_millis(1_500),
        packet: PacketName::new("say").unwrap(),
        version: 2,
        codec: PayloadCodec::Postcard,
        metadata: Metadata::none(),
    }
}

pub(super) fn reply(error: Option<ErrorKind>) -> Reply {
    Reply { correlation: Correlation::from_u64(300).unwrap(), error, stale_route: true }
}

/// One message of every variant, in wire order. A new variant does not compile until it has its place here.
pub(super) fn every_variant() -> Vec<Message> {
    let hello = Hello {
        mesh: MeshName::new("alpha").unwrap(),
        rid: Rid::new([0xff, 0x00]).unwrap(),
        lifecycle: lifecycle(7),
        revision: DescriptorRevision::FIRST,
        channels: channels(),
        identity: SecurityIdentity::new("anonymous").unwrap(),
        trust_profile: "open".to_owned(),
        role: ObjectRole::Server,
        host_state: HostState::Serving,
        endpoint: "tcp://127.0.0.1:7001".to_owned(),
        protocol: 1,
        required_capabilities: 0,
        dialled: true,
        attempt: 3,
    };
    let update = NodeUpdate {
        lifecycle: lifecycle(7),
        revision: DescriptorRevision::new(2).unwrap(),
        channels: channels(),
        host_state: HostState::Draining,
    };
    let key = ObjectKey::Actor(ActorId::new("player-1").unwrap());
    let order = CreateOrder {
        operation: operation(),
        key: key.clone(),
        kind: ObjectKind::Actor,
        stable_type: StableType::new("player").unwrap(),
        fence: ReservationFence {
            key,
            reservation: ReservationId::new(5).unwrap(),
            object_generation: ObjectGeneration::new(11).unwrap(),
            owner_generation: AuthorityOwnerGeneration::FIRST,
            version: StoreVersion::new(12).unwrap(),
            target: NodeFence {
                mesh: MeshName::new("alpha").unwrap(),
                rid: Rid::new(b"b").unwrap(),
                lifecycle: lifecycle(8),
                lease: lease(),
            },
            deadline_at: StoreTime::from_micros(1_000_000),
        },
        remaining: Duration::from_secs(30),
    };
    let answer = CreateAnswer {
        operation: operation(),
        reservation: ReservationId::new(5).unwrap(),
        verdict: CreateVerdict::Created { object_generation: ObjectGeneration::new(11).unwrap() },
    };
    let stale = StaleRoute { target: ActorId::new("player-1").unwrap(), lifecycle: lifecycle(7) };
    let all = vec![
        Message::Hello(Box::new(hello)),
        Message::Welcome,
        Message::Refused(Refusal::Held),
        Message::Probe(1),
        Message::ProbeAck(u64::MAX),
        Message::NodeUpdate(update),
        Message::CreateOrder(Box::new(order)),
        Message::CreateAnswer(Box::new(answer)),
        Message::Actor(Box::new(actor_message())),
        Message::Reply(reply(None)),
        Message::StaleRoute(Box::new(stale)),
    ];
    for (at, message) in all.iter().enumerate() {
        let place = match message {
            Message::Hello(_) => 0,
            Message::Welcome => 1,
            Message::Refused(_) => 2,
            Message::Probe(_) => 3,
            Message::ProbeAck(_) => 4,
            Message::NodeUpdate(_) => 5,
            Message::CreateOrder(_) => 6,
            Message::CreateAnswer(_) => 7,
            Message::Actor(_) => 8,
            Message::Reply(_) => 9,
            Message::StaleRoute(_) => 10,
        };
        assert_eq!(place, at);
    }
    all
}

/// The header of an Actor message with metadata that the sender did not check.
pub(super) fn actor_header_with_metadata(entries: &[(&str, &str)]) -> Vec<u8> {
    let header = crate::wire::encode(&Message::Actor(Box::new(actor_message())), None).header;
    // Empty metadata is the last byte: a count of zero.
    let mut header = header.to_vec();
    assert_eq!((header[0], header.pop()), (WIRE_VERSION, Some(0)));
    postcard::to_extend(&entries, header).unwrap()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9._-]{1,20}", "\\PC{1,20}", Just("x".repeat(255))]
}

fn id<T: Clone + std::fmt::Debug>(make: fn(&str) -> T) -> impl Strategy<Value = T> {
    text().prop_map(move |text| make(&text))
}

fn any_rid() -> impl Strategy<Value = Rid> {
    prop::collection::vec(any::<u8>(), 1..=255).prop_map(|bytes| Rid::new(bytes).unwrap())
}

fn non_zero() -> impl Strategy<Value = u64> {
    prop_oneof![1..300u64, 1..=u64::MAX, Just(u64::MAX)]
}

fn generation() -> impl Strategy<Value = u64> {
    prop_oneof![1..300u64, 1..(1u64 << 63), Just((1 << 63) - 1)]
}

fn id128() -> impl Strategy<Value = u128> {
    prop_oneof![1..300u128, 1..=u128::MAX]
}

fn any_lease() -> impl Strategy<Value = LeaseRef> {
    (id128(), generation()).prop_map(|(owner, generation)| LeaseRef {
        owner: OwnerId::new(owner).unwrap(),
        generation: LeaseGeneration::new(generation).unwrap(),
    })
}

fn any_remaining() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

fn any_operation() -> impl Strategy<Value = OperationIdentity> {
    (any_rid(), non_zero(), id128()).prop_map(|(source_rid, source, operation)| OperationIdentity {
        source_rid,
        source_lifecycle: lifecycle(source),
        operation: OperationId::new(operation).unwrap(),
    })
}

fn any_channels() -> impl Strategy<Value = BTreeMap<ChannelName, Weight>> {
    let weight = (0..=10_000i64).prop_map(|weight| Weight::new(weight).unwrap());
    prop::collection::btree_map(id(|text| ChannelName::new(text).unwrap()), weight, 0..4)
}

fn any_state() -> impl Strategy<Value = HostState> {
    use HostState as S;
    prop::sample::select(vec![
        S::Preparing,
        S::Serving,
        S::Relocating,
        S::Relocated,
        S::Draining,
        S::Stopped,
        S::Error,
    ])
}

fn any_kind() -> impl Strategy<Value = ErrorKind> {
    prop::sample::select(ErrorKind::ALL.to_vec())
}

fn any_hello() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec![ObjectRole::None, ObjectRole::Client, ObjectRole::Server]);
    let who = (id(|text| MeshName::new(text).unwrap()), any_rid(), non_zero(), generation());
    let what =
        (any_channels(), id(|text| SecurityIdentity::new(text).unwrap()), ".{0,20}", role, any_state());
    let rest = (".{0,40}", any::<u16>(), any::<u64>(), any::<bool>(), any::<u64>());
    (who, what, rest).prop_map(
        |(
            (mesh, rid, life, revision),
            (channels, identity, trust_profile, role, host_state),
            (endpoint, protocol, required_capabilities, dialled, attempt),
        )| {
            Message::Hello(Box::new(Hello {
                mesh,
                rid,
                lifecycle: lifecycle(life),
                revision: DescriptorRevision::new(revision).unwrap(),
                channels,
                identity,
                trust_profile,
                role,
                host_state,
                endpoint,
                protocol,
                required_capabilities,
                dialled,
                attempt,
            }))
        },
    )
}

fn any_order() -> impl Strategy<Value = Message> {
    let key = prop_oneof![
        id(|text| ObjectKey::Actor(ActorId::new(text).unwrap())),
        id(|text| ObjectKey::Spot(SpotId::new(text).unwrap())),
    ];
    let kind = prop::sample::select(vec![
        ObjectKind::Actor,
        ObjectKind::Spot(SpotKind::User),
        ObjectKind::Spot(SpotKind::Instance),
    ]);
    let node = (id(|text| MeshName::new(text).unwrap()), any_rid(), non_zero(), any_lease());
    let node =
        node.prop_map(|(mesh, rid, life, lease)| NodeFence { mesh, rid, lifecycle: lifecycle(life), lease });
    let fence = (id128(), generation(), generation(), generation(), node, any::<i64>());
    let stable_type = id(|text| StableType::new(text).unwrap());
    (any_operation(), key, kind, stable_type, fence, any_remaining()).prop_map(
        |(operation, key, kind, stable_type, fence, remaining)| {
            let (reservation, object, owner, version, target, deadline) = fence;
            let fence = ReservationFence {
                key: key.clone(),
                reservation: ReservationId::new(reservation).unwrap(),
                object_generation: ObjectGeneration::new(object).unwrap(),
                owner_generation: AuthorityOwnerGeneration::new(owner).unwrap(),
                version: StoreVersion::new(version).unwrap(),
                target,
                deadline_at: StoreTime::from_micros(deadline),
            };
            Message::CreateOrder(Box::new(CreateOrder {
                operation,
                key,
                kind,
                stable_type,
                fence,
                remaining,
            }))
        },
    )
}

fn any_answer() -> impl Strategy<Value = Message> {
    let object = || generation().prop_map(|value| ObjectGeneration::new(value).unwrap());
    let verdict = prop_oneof![
        object().prop_map(|object_generation| CreateVerdict::Created { object_generation }),
        object().prop_map(|object_generation| CreateVerdict::Rejected { object_generation }),
        any_kind().prop_map(CreateVerdict::Failed),
        Just(CreateVerdict::NotAdmitted),
        Just(CreateVerdict::ReservationGone),
        Just(CreateVerdict::Unavailable),
    ];
    (any_operation(), id128(), verdict).prop_map(|(operation, reservation, verdict)| {
        let reservation = ReservationId::new(reservation).unwrap();
        Message::CreateAnswer(Box::new(CreateAnswer { operation, reservation, verdict }))
    })
}

fn any_correlation() -> impl Strategy<Value = Correlation> {
    non_zero().prop_map(|value| Correlation::from_u64(value).unwrap())
}

fn any_actor() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![Just(CallKind::Send), any_correlation().prop_map(CallKind::Request)];
    let codec = prop::sample::select(vec![PayloadCodec::Postcard, PayloadCodec::Json]);
    let metadata = prop::collection::vec(("[^\0]{0,20}", "[^\0]{0,60}"), 0..4).prop_map(|entries| {
        let mut metadata = Metadata::none();
        for (key, value) in entries {
            metadata.insert(&key, &value).unwrap();
        }
        metadata
    });
    let target = id(|text| ActorId::new(text).unwrap());
    let packet = id(|text| PacketName::new(text).unwrap());
    (target, non_zero(), any_lease(), kind, any_remaining(), packet, any::<u16>(), codec, metadata).prop_map(
        |(target, life, lease, kind, remaining, packet, version, codec, metadata)| {
            let lifecycle = lifecycle(life);
            Message::Actor(Box::new(ActorMessage {
                target,
                lifecycle,
                lease,
                kind,
                remaining,
                packet,
                version,
                codec,
                metadata,
            }))
        },
    )
}

/// Any legal message.
pub(super) fn any_message() -> impl Strategy<Value = Message> {
    use Refusal as R;
    let refusal = prop::sample::select(vec![
        R::NotReady,
        R::ShuttingDown,
        R::Incompatible,
        R::WrongMesh,
        R::TrustProfile,
        R::OwnRid,
        R::Unexpected,
        R::NotRequired,
        R::Held,
        R::Duplicate,
    ]);
    let update = (non_zero(), generation(), any_channels(), any_state()).prop_map(
        |(life, revision, channels, host_state)| NodeUpdate {
            lifecycle: lifecycle(life),
            revision: DescriptorRevision::new(revision).unwrap(),
            channels,
            host_state,
        },
    );
    let reply = (any_correlation(), prop::option::of(any_kind()), any::<bool>())
        .prop_map(|(correlation, error, stale_route)| Reply { correlation, error, stale_route });
    let stale = (id(|text| ActorId::new(text).unwrap()), non_zero())
        .prop_map(|(target, life)| StaleRoute { target, lifecycle: lifecycle(life) });
    prop_oneof![
        any_hello(),
        Just(Message::Welcome),
        refusal.prop_map(Message::Refused),
        any::<u64>().prop_map(Message::Probe),
        any::<u64>().prop_map(Message::ProbeAck),
        update.prop_map(Message::NodeUpdate),
        any_order(),
        any_answer(),
        any_actor(),
        reply.prop_map(Message::Reply),
        stale.prop_map(|stale| Message::StaleRoute(Box::new(stale))),
    ]
}

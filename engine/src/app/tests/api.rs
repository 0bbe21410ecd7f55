//! Registration, builders, addresses, state adapters.

use serde::{Deserialize, Serialize};

use super::subject::*;
use crate::app::{Address, ErrorKind, Factory, HostBuilder, MeshBuilder};
use crate::config::RidChoice;
use crate::model::{ActorId, ObjectKind, ObjectRole, RelocationPolicy};

fn refused(builder: HostBuilder) -> String {
    let error = builder.build().err().expect("a configuration error");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    error.description().to_owned()
}

/// A host with a Store nobody will call, whose node is described by `configure`.
fn host(configure: impl FnOnce(MeshBuilder) -> MeshBuilder) -> HostBuilder {
    HostBuilder::new().store(super::scripted::Scene::new().store).mesh("game", configure)
}

#[test]
fn a_description_becomes_the_cores_configuration() {
    let plan = host(|m| {
        m.server()
            .weight(7)
            .max_actors(50)
            .max_spots(5)
            .max_pending_activations(3)
            .prefix("zone")
            .actor(registered)
    })
    .application_version(4)
    .build()
    .unwrap();
    let config = plan.config();
    assert!(config.has_store);
    assert_eq!(config.application_version, 4);
    let node = &config.nodes[0];
    assert_eq!((node.mesh.as_str(), node.role), ("game", ObjectRole::Server));
    assert_eq!((node.placement_weight.get(), node.actor_limit, node.spot_limit), (7, 50, 5));
    assert_eq!(node.pending_activation_limit, 3);
    assert!(matches!(&node.rid, RidChoice::Automatic { prefix } if prefix.as_str() == "zone"));
    let registration = &node.types[0];
    assert_eq!(registration.stable_type.as_str(), "test.subject");
    assert_eq!(
        (registration.kind, registration.policy),
        (ObjectKind::Actor, RelocationPolicy::PreserveState)
    );
}

#[test]
fn node_31_each_policy_method_registers_its_policy() {
    let policy = |registered: crate::app::Registered<Subject>| registered.policy();
    assert_eq!(policy(Factory::new().disable_relocation()), RelocationPolicy::DisableRelocation);
    assert_eq!(policy(Factory::new().recreate_on_relocation()), RelocationPolicy::RecreateOnRelocation);
    assert_eq!(policy(Factory::new().preserve_state()), RelocationPolicy::PreserveState);
    assert!(Factory::<Subject>::new().disable_relocation().adapter().is_none());
}

/// A second type with the stable type of [`Subject`], and a message with the name of [`Add`].
struct Twin;

impl crate::app::Actor for Twin {
    const TYPE: &'static str = "test.subject";
    type Create = ();
    type Accepted = ();
    type Rejected = ();

    async fn create(
        (): (),
        _: &mut crate::app::CreateContext<'_>,
    ) -> Result<crate::app::Admission<Self>, crate::app::Error> {
        Ok(crate::app::Admission::accept(Twin, ()))
    }
}

impl<M: crate::app::Message<Reply = u32>> crate::app::Handle<M> for Twin {
    async fn handle(
        &mut self,
        _: M,
        _: &mut crate::app::ActorContext<'_, Self>,
    ) -> Result<u32, crate::app::Error> {
        Ok(0)
    }
}

#[test]
fn err_21_what_the_types_cannot_exclude_is_refused_before_the_start() {
    let rows: Vec<(HostBuilder, &str)> = vec![
        // Row 1.
        (host(|m| m).mesh("game", |m| m), "registered twice in this process"),
        // Row 2.
        (host(|m| m.server().client()), "object role: expected at most one choice, found 2"),
        // Row 3.
        (HostBuilder::new().mesh("game", |m| m.client()), "needs a Location Store"),
        // Rows 4 and 5.
        (host(|m| m.client().actor(registered)), "factories need role Server"),
        (host(|m| m.actor(registered)), "factories need role Server"),
        // Row 6.
        (host(|m| m.rid("r1").prefix("p")), "found both"),
        // Row 9.
        (
            host(|m| m.server().actor(registered).actor::<Twin>(Factory::disable_relocation)),
            "test.subject is registered twice",
        ),
        // Row 14.
        (host(|m| m.weight(-1)), "placement weight: expected 0..=10000, found -1"),
        (host(|m| m.channel("c", 10_001)), "Channel weight: expected 0..=10000, found 10001"),
        // Row 15.
        (host(|m| m.max_actors(-1)), "max_actors: expected 0..2^31-1, found -1"),
        (host(|m| m.max_spots(1 << 31)), "max_spots: expected 0..2^31-1, found 2147483648"),
        (host(|m| m.max_pending_activations(0)), "max_pending_activations: expected 1..2^31-1, found 0"),
        // Row 16.
        (host(|m| m.client().manual([])), "Manual mode offers no object runtime"),
        // Row 21.
        (host(|m| m.channel("c", 1).channel("c", 1)), "ChannelName c is registered twice"),
        (
            host(|m| m.server().actor::<Twin>(|f| f.handles::<Add>().handles::<Add2>().disable_relocation())),
            "a handler of `test.add` is registered twice",
        ),
        (host(|m| m).store(super::scripted::Scene::new().store), "at most one Location Store, found 2"),
        // Illegal texts.
        (HostBuilder::new().mesh("", |m| m), "MeshName: expected 1..=255 bytes, found 0"),
        (host(|m| m.rid("")), "Rid: expected 1..=255 bytes, found 0"),
        (host(|m| m.prefix("a b")), "Prefix: expected only"),
        (host(|m| m.identity("")), "SecurityIdentity: expected 1..=255 bytes, found 0"),
        (host(|m| m).maintenance_wave(""), "maintenance_wave"),
        (host(|m| m).application_version(1 << 63), "application_version"),
    ];
    for (builder, expected) in rows {
        let found = refused(builder);
        assert!(found.contains(expected), "expected `{expected}`, found `{found}`");
    }
}

#[test]
fn an_address_is_encoded_as_its_id_and_takes_legal_ids_only() {
    #[derive(Serialize, Deserialize)]
    struct Target(Address<Subject>);
    let address = Address::<Subject>::new("ann").unwrap();
    let bytes = postcard::to_stdvec(&Target(address.clone())).unwrap();
    assert_eq!(bytes, postcard::to_stdvec(&ActorId::new("ann").unwrap()).unwrap());
    let Target(back) = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(back, address);
    assert!(postcard::from_bytes::<Address<Subject>>(&[0]).is_err());
    assert!(Address::<Subject>::new("a\0").is_err());
}

#[test]
fn a_state_adapter_sees_the_senders_version() {
    let registered = registered(Factory::new());
    let adapter = registered.adapter().unwrap();
    assert_eq!(adapter.version(), 2);
    let bytes = adapter.capture(&Subject { value: 7 }).unwrap();
    assert_eq!(adapter.restore(2, &bytes).unwrap().value, 7);
    assert_eq!(adapter.restore(1, &bytes).unwrap().value, 70);
    let kind = |result: Result<Subject, crate::app::Error>| result.err().unwrap().kind();
    assert_eq!(kind(adapter.restore(3, &bytes)), ErrorKind::StateIncompatible);
    assert_eq!(kind(adapter.restore(2, &[7, 7])), ErrorKind::StateIncompatible, "bytes left over");
}

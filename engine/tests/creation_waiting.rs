//! Operations that meet somebody else's attempt (spec 04 §6).

mod scene;

use scene::{Scene, server};

#[test]
fn smoke() {
    let mut scene = Scene::new(vec![server("a"), server("b")]);
    let call = scene.create(0, "one", "accept hi");
    scene.advance(std::time::Duration::from_secs(1));
    let (_, reply) = scene.expect_created(call);
    assert_eq!(reply, "re:accept hi");
    let ask = scene.request(1, "one", "hello");
    scene.expect_replied(ask, "re:hello");
}

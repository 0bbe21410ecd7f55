//! Turns in the loop, on the executor, panicking, abandoned.

use std::time::Duration;

use futures::future::join;

use super::scripted::{Scene, quick_turn};
use super::subject::{self, *};
use crate::app::{Address, Created, ErrorKind, TurnPlacement};
use crate::driver::Clock;
use crate::input::{Input, InstanceId, TurnEnd, TurnId};
use crate::output::Output;

const PLACEMENTS: [TurnPlacement; 3] =
    [TurnPlacement::Inline, TurnPlacement::SpawnedOnWait, TurnPlacement::Spawned];

/// The Actor `a` with instance 1; its creation was turn 2.
async fn with_actor(scene: &Scene, value: u32) {
    let created = scene.host.actors().create::<Subject>("a", Begin::With(value)).await.unwrap();
    assert!(matches!(created, Created::Accepted { reply, .. } if reply == b"a"));
}

#[test]
fn a_handler_that_does_not_wait_costs_no_task() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        with_actor(&scene, 1).await;
        assert_eq!(scene.host.actor::<Subject>("a").request(Add(4)).await.unwrap(), 5);
        assert_eq!(scene.host.address("a").request(Add(1)).await.unwrap(), 6);
        let address = Address::<Subject>::new("a").unwrap();
        assert_eq!(scene.host.at(&address).request(Add(1)).await.unwrap(), 7);
    });
    assert_eq!(*scene.spawned.lock().unwrap(), 0);
    let kinds: Vec<_> = scene.script().inputs.iter().map(|i| matches!(i, Input::Called { .. })).collect();
    assert_eq!(kinds, [true, false].repeat(4), "each call, then the end of its turn");
}

#[test]
fn a_turn_that_waits_holds_up_nobody_else() {
    for placement in PLACEMENTS {
        let scene = Scene::with(placement);
        scene.runtime.block_on(async {
            with_actor(&scene, 1).await;
            scene.host.actors().create::<Subject>("b", Begin::With(10)).await.unwrap();
            let start = scene.runtime.now();
            let slow = scene.host.actor::<Subject>("a").request(AddLater(500, 1));
            let quick = async {
                let value = scene.host.actor::<Subject>("b").request(Add(1)).await.unwrap();
                assert_eq!(scene.runtime.now(), start, "no time passed");
                value
            };
            let (slow, quick) = join(slow.into_future(), quick).await;
            assert_eq!((slow.unwrap(), quick), (2, 11), "{placement:?}");
            assert_eq!(scene.runtime.now().since(start), Duration::from_millis(500));
        });
        let spawned = *scene.spawned.lock().unwrap();
        let expected = match placement {
            TurnPlacement::Inline => 0,
            TurnPlacement::SpawnedOnWait => 1,
            TurnPlacement::Spawned => 4,
        };
        assert_eq!(spawned, expected, "{placement:?}");
    }
}

#[test]
fn a_turn_calls_into_its_own_host_and_names_itself() {
    for placement in PLACEMENTS {
        let scene = Scene::with(placement);
        scene.runtime.block_on(async {
            with_actor(&scene, 1).await;
            scene.host.actors().create::<Subject>("b", Begin::With(10)).await.unwrap();
            assert_eq!(scene.host.actor::<Subject>("a").request(AddTo("b".to_owned(), 5)).await.unwrap(), 15);
            assert!(scene.host.actor::<Subject>("a").request(Beget("c".to_owned())).await.unwrap());
            assert_eq!(scene.host.actor::<Subject>("c").request(Add(1)).await.unwrap(), 2);
        });
        let froms: Vec<_> = scene.script().inputs.iter().filter_map(called_from).collect();
        let turn = |n| Some(TurnId(n));
        assert_eq!(
            froms,
            [None, None, None, turn(5), None, turn(7), turn(7), None],
            "{placement:?}: two creations, a request, its nested one, a request, create and find in it, a request"
        );
    }
}

fn called_from(input: &Input) -> Option<Option<TurnId>> {
    match input {
        Input::Called { from, .. } => Some(*from),
        _ => None,
    }
}

#[test]
fn model_63_a_panic_ends_its_turn_and_nothing_else() {
    for placement in PLACEMENTS {
        for after in [0, 20] {
            let scene = Scene::with(placement);
            scene.runtime.block_on(async {
                with_actor(&scene, 7).await;
                let actor = scene.host.actor::<Subject>("a");
                let error = actor.request(Panic { after }).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InternalFailure);
                assert_eq!(actor.request(Add(1)).await.unwrap(), 8, "the same object goes on");
            });
            assert_eq!(scene.ends()[1], TurnEnd::Panicked, "{placement:?}");
        }
    }
}

#[test]
fn model_63_a_panic_while_an_object_is_dropped_stays_inside() {
    let scene = Scene::new();
    scene.on_step(1, vec![Output::DropInstance(InstanceId(1))]);
    scene.runtime.block_on(async {
        with_actor(&scene, 666).await;
        scene.step(1).await;
        assert_eq!(subject::dropped(), [666]);
        scene.host.actors().create::<Subject>("b", Begin::With(1)).await.unwrap();
    });
}

#[test]
fn creations_end_accepted_declined_failed_or_panicked() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        let create = |begin| scene.host.actors().create::<Subject>("a", begin).into_future();
        let declined = create(Begin::Decline("full".to_owned())).await.unwrap();
        assert!(matches!(declined, Created::Rejected { reply } if reply == "full"));
        let kind = create(Begin::Fail).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Rejected, "ERR-17: the kind the callback returned");
        assert_eq!(create(Begin::Panic).await.unwrap_err().kind(), ErrorKind::InternalFailure);
        assert_eq!(create(Begin::BigReply).await.unwrap_err().kind(), ErrorKind::ProtocolError);
        assert_eq!(subject::dropped(), [9], "CREATE-22: the object of a reply that does not fit");
    });
    let panicked = matches!(scene.ends()[2], TurnEnd::Panicked);
    assert!(panicked);
}

#[test]
fn create_68_an_abandoned_turn_is_dropped_and_never_reported() {
    for placement in PLACEMENTS {
        let scene = Scene::with(placement);
        scene.on_step(1, vec![Output::AbandonTurn(TurnId(2))]);
        scene.runtime.block_on(async {
            let create = scene.host.actors().create::<Subject>("a", Begin::After(5_000, 3)).into_future();
            let abandon = async {
                scene.sleep(Duration::from_secs(1)).await;
                scene.step(1).await;
                scene.sleep(Duration::from_secs(60)).await;
            };
            let outcome = futures::future::select(create, Box::pin(abandon)).await;
            assert!(matches!(outcome, futures::future::Either::Right(_)), "{placement:?}: it was answered");
        });
        assert_eq!(scene.ends(), [], "{placement:?}");
        assert_eq!(scene.runtime.tasks(), 1, "{placement:?}: only the loop is left");
    }
}

#[test]
fn create_68_an_end_that_crosses_its_abandonment_is_not_reported() {
    // One step starts a turn that ends at once and abandons it before the core could hear of the end.
    let scene = Scene::new();
    scene.runtime.block_on(async {
        with_actor(&scene, 3).await;
        scene.on_step(1, vec![quick_turn(90, 1), Output::AbandonTurn(TurnId(90))]);
        scene.step(1).await;
        scene.sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(scene.ends().len(), 1, "the creation's end only");
    assert_eq!(subject::dropped(), [4], "the object went with its turn");
}

#[test]
fn an_instance_is_dropped_after_its_running_turn() {
    for placement in PLACEMENTS {
        let scene = Scene::with(placement);
        scene.on_step(1, vec![Output::DropInstance(InstanceId(1))]);
        scene.runtime.block_on(async {
            with_actor(&scene, 1).await;
            let slow = scene.host.actor::<Subject>("a").request(AddLater(500, 1)).into_future();
            let drop_it = async {
                scene.sleep(Duration::from_millis(100)).await;
                scene.step(1).await;
                assert!(subject::dropped().is_empty(), "{placement:?}: the turn still runs");
            };
            let (slow, ()) = join(slow, drop_it).await;
            assert_eq!(slow.unwrap(), 2);
            assert_eq!(subject::dropped(), [2], "{placement:?}");
            let error = scene.host.actor::<Subject>("a").request(Add(1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InternalFailure, "the core named an instance that is gone");
        });
    }
}

#[test]
fn unusable_messages_run_no_handler() {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        with_actor(&scene, 1).await;
        let actor = scene.host.address("a");
        assert_eq!(actor.request(Unknown).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(actor.request(Add2(1)).await.unwrap_err().kind(), ErrorKind::ProtocolError);
        assert_eq!(actor.request(Break).await.unwrap_err().kind(), ErrorKind::ProtocolError);
        assert_eq!(actor.request(Add(0)).await.unwrap(), 1, "nothing was added");
    });
    let ends = scene.ends();
    assert_eq!(ends[1..3], [TurnEnd::NoHandler, TurnEnd::Undecodable]);
    assert_eq!(ends[3], TurnEnd::Failed(ErrorKind::ProtocolError), "the reply has no encoding");
}

#[test]
fn a_turn_whose_task_the_executor_loses_ends_failed() {
    let scene = Scene::with(TurnPlacement::SpawnedOnWait);
    scene.runtime.block_on(async {
        with_actor(&scene, 1).await;
        let slow = scene.host.actor::<Subject>("a").request(AddLater(500, 1)).into_future();
        let lose = async {
            scene.sleep(Duration::from_millis(100)).await;
            scene.runtime.lose_youngest_task();
        };
        let (slow, ()) = join(slow, lose).await;
        assert_eq!(slow.unwrap_err().kind(), ErrorKind::InternalFailure);
    });
}

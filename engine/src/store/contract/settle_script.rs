//! The script behind STORE-T22: every mutation once, each building on the ones before.

use std::sync::Arc;

use bytes::Bytes;

use super::fixture::*;
use super::moves::*;
use super::provider::Provider;
use super::settle::Run;
use crate::model::{ActivationId, ContentId, ErrorKind, ExecutionMode, ObjectKey, Sha256Digest, SpotId};
use crate::store::*;

/// Runs the script; returns every key it used.
pub(crate) async fn run<P: Provider>(run: &Run<'_, '_, P>) -> Vec<ObjectKey> {
    let node = start(run, "n").await;
    let target = start(run, "m").await;
    let mut keys = create(run, &node).await;
    keys.extend(activate(run, &node).await);
    keys.extend(join_and_close(run, &node).await);
    keys.extend(relocate(run, &node, &target).await);
    keys.extend(aggregate(run, &node, &target).await);
    keys.extend(shell(run, &node, &target).await);
    keys.extend(die(run).await);
    stop(run, &target).await;
    keys
}

/// Lease, claim, descriptor.
async fn start<P: Provider>(run: &Run<'_, '_, P>, name: &str) -> Node {
    let owner = run.world.owner_id();
    let lease = run.done(AcquireLease { owner, ttl: TTL }, None).await.lease;
    assert_eq!(run.done(RenewLease { lease, ttl: TTL }, None).await.lease, lease);
    let claim = run.world.claim(&run.name(name), lease, unlimited());
    run.done(claim.clone(), None).await;
    let body = descriptor(&claim, 1);
    run.done(PublishDescriptor { descriptor: Arc::new(body), lease }, None).await;
    let body = descriptor(&claim, 2);
    run.done(UpdateDescriptor { descriptor: Arc::new(body.clone()), lease }, None).await;
    let entry = claim.entry_spot_id.clone().expect("a Server's");
    let node = Node { fence: fence(&claim), entry, descriptor: body };
    run.watch_node(&node);
    node
}

/// A reservation, with its content put and its row reserved under loss.
async fn reserve<P: Provider>(
    run: &Run<'_, '_, P>,
    key: &ObjectKey,
    of: Kind,
    node: &Node,
) -> ReservationFence {
    let mut request = run.world.reservation(key, of, node).await;
    if of != INSTANCE_SPOT {
        let bytes = Bytes::from(format!("{key} {}", run.world.bits()));
        let (sha256, size) = (Sha256Digest::of(&bytes), u32::try_from(bytes.len()).expect("short"));
        let content = ContentId::new(run.world.bits()).expect("not zero");
        run.done(PutCreationContent { content, bytes, sha256, retention: REMAINING }, None).await;
        request.source = CreationSource::Content(content, sha256, size);
    }
    *run.done(request, Some(key)).await.value
}

type Kind = (crate::model::ObjectKind, &'static str);

async fn ready<P: Provider>(run: &Run<'_, '_, P>, key: &ObjectKey, of: Kind, node: &Node) -> AuthorityView {
    let fence = reserve(run, key, of, node).await;
    *run.done(commit(&fence, node), Some(key)).await
}

async fn create<P: Provider>(run: &Run<'_, '_, P>, node: &Node) -> Vec<ObjectKey> {
    let keys = ["created", "rejected", "failed", "withdrawn"].map(|id| actor(&run.name(id)));
    let [created, rejected, failed, withdrawn] = &keys;
    let lease = node.fence.lease;
    ready(run, created, ACTOR, node).await;
    let fence = reserve(run, rejected, ACTOR, node).await;
    let answer = envelope(&fence, TerminalOutcome::Rejected);
    run.done(CommitRejected { fence, lease, envelope: answer }, Some(rejected)).await;
    let fence = reserve(run, failed, ACTOR, node).await;
    let answer = Some(envelope(&fence, TerminalOutcome::Failed(ErrorKind::InternalFailure)));
    run.done(AbortFailed { fence, lease, envelope: answer }, Some(failed)).await;
    let fence = reserve(run, withdrawn, ACTOR, node).await;
    run.done(AbortNotExecuted { fence, lease }, Some(withdrawn)).await;
    keys.to_vec()
}

async fn activate<P: Provider>(run: &Run<'_, '_, P>, node: &Node) -> Vec<ObjectKey> {
    let key = spot(&run.name("match"));
    let lease = node.fence.lease;
    let envelope = Bytes::from(format!("first message {}", run.world.bits()));
    let (sha256, size) = (Sha256Digest::of(&envelope), u32::try_from(envelope.len()).expect("short"));
    let activation = ActivationId::new(run.world.bits()).expect("not zero");
    run.done(PutActivation { activation, envelope, sha256, retention: REMAINING }, None).await;
    let request = Reserve {
        source: CreationSource::Activation(activation, sha256, size),
        ..run.world.reservation(&key, INSTANCE_SPOT, node).await
    };
    let fence = *run.done(request, Some(&key)).await.value;
    let progress = RecordActivationProgress {
        spot: SpotId::new(key.id()).expect("legal"),
        object_generation: fence.object_generation,
        owner_generation: fence.owner_generation,
        activation,
        inbox_sequence: Some(1),
        cursor: None,
        lease,
    };
    run.done(progress.clone(), Some(&key)).await;
    run.done(commit(&fence, node), Some(&key)).await;
    run.done(
        RecordActivationProgress { inbox_sequence: None, cursor: Some(1), ..progress.clone() },
        Some(&key),
    )
    .await;
    let clear = ClearActivation {
        spot: progress.spot,
        object_generation: progress.object_generation,
        owner_generation: progress.owner_generation,
        activation,
        lease,
    };
    run.done(clear, Some(&key)).await;
    vec![key]
}

async fn join_and_close<P: Provider>(run: &Run<'_, '_, P>, node: &Node) -> Vec<ObjectKey> {
    let (hero, zone) = (actor(&run.name("joins")), spot(&run.name("joined")));
    ready(run, &zone, USER_SPOT, node).await;
    let row = ready(run, &hero, ACTOR, node).await;
    let row = run.done(run.world.join_request(&row, &spot_id(zone.id())), Some(&hero)).await;
    let (close, lease) = (run.world.operation_id(), node.fence.lease);
    let marked = run.done(BeginClose { fence: authority_fence(&row), close, lease }, Some(&hero)).await;
    run.done(FinishClose { fence: authority_fence(&marked), close, lease }, Some(&zone)).await;
    vec![hero, zone]
}

async fn relocate<P: Provider>(run: &Run<'_, '_, P>, node: &Node, target: &Node) -> Vec<ObjectKey> {
    let key = actor(&run.name("moves"));
    let at = Some(&key);
    let row = ready(run, &key, ACTOR, node).await;
    let zone = spot(&run.name("destination"));
    ready(run, &zone, USER_SPOT, target).await;
    // Aborted once, and cleared by the source.
    let row = run.done(run.world.reserve_move(&row, target), at).await;
    let row = run.done(abort_of(&row), at).await;
    let row = run.done(clear_of(&row), at).await;
    // Then committed, with a Join.
    let row = run.done(run.world.reserve_move(&row, target), at).await;
    let row = run.done(step_of(&row, MarkPhase::Captured), at).await;
    let row = run.done(step_of(&row, MarkPhase::Prepared), at).await;
    let (from, to, join) = (node.entry.clone(), spot_id(zone.id()), run.world.operation_id());
    let row = run.done(commit_of(&row, Some(MembershipMove { from, to, join })), at).await;
    run.done(clear_of(&row), at).await;
    vec![key, zone]
}

async fn aggregate<P: Provider>(run: &Run<'_, '_, P>, node: &Node, target: &Node) -> Vec<ObjectKey> {
    let (hero, zone) = (actor(&run.name("member")), spot(&run.name("aggregate")));
    ready(run, &zone, USER_SPOT, node).await;
    let row = ready(run, &hero, ACTOR, node).await;
    run.done(run.world.join_request(&row, &spot_id(zone.id())), Some(&hero)).await;
    for committed in [false, true] {
        let rows = [run.world.row(&hero).await, run.world.row(&zone).await];
        let (puts, prepare) = run.world.plan_aggregate(&rows, target);
        for put in puts {
            run.done(put, None).await;
        }
        run.done(prepare, Some(&zone)).await;
        let prepared = run.world.row(&zone).await;
        if committed {
            run.done(commit_aggregate_of(&prepared), Some(&hero)).await;
        } else {
            let aborted = run.done(abort_aggregate_of(&prepared), Some(&zone)).await;
            run.done(clear_of(&aborted), Some(&zone)).await;
        }
    }
    assert_eq!(run.world.row(&hero).await.owner, target.fence);
    vec![hero, zone]
}

async fn shell<P: Provider>(run: &Run<'_, '_, P>, node: &Node, target: &Node) -> Vec<ObjectKey> {
    let key = spot(&run.name("shell"));
    let mut request = run.world.reservation(&key, USER_SPOT, node).await;
    request.execution_mode = Some(ExecutionMode::PerActor);
    let fence = *run.done(request, Some(&key)).await.value;
    let row = run.done(commit(&fence, node), Some(&key)).await;
    let row = run.done(run.world.reserve_move(&row, target), Some(&key)).await;
    run.done(commit_spot_of(&row), Some(&key)).await;
    vec![key]
}

/// A host that dies: recovery, stale close, retirement, by another host.
async fn die<P: Provider>(run: &Run<'_, '_, P>) -> Vec<ObjectKey> {
    let node = start(run, "dies").await;
    let keys = [actor(&run.name("stranded")), actor(&run.name("closing")), actor(&run.name("left"))];
    let [stranded, closing, left] = &keys;
    reserve(run, stranded, ACTOR, &node).await;
    let row = ready(run, closing, ACTOR, &node).await;
    let (close, lease) = (run.world.operation_id(), node.fence.lease);
    run.done(BeginClose { fence: authority_fence(&row), close, lease }, Some(closing)).await;
    ready(run, left, ACTOR, &node).await;
    let others = run.living_leases();
    run.world.provider.advance(TTL / 2).await;
    for lease in &others {
        run.world.renew(*lease).await;
    }
    run.world.provider.advance(TTL / 2).await;
    let other = others[0];
    let version = run.world.row(stranded).await.version;
    run.gone(AbortRecovery { key: stranded.clone(), version, lease: other }, stranded).await;
    let version = run.world.row(closing).await.version;
    run.gone(FinishStaleClose { key: closing.clone(), version, lease: other }, closing).await;
    assert_eq!(run.done(RetireOwner { lease, limit: 10 }, Some(left)).await.value, 0);
    keys.to_vec()
}

/// A host that shuts down in order.
async fn stop<P: Provider>(run: &Run<'_, '_, P>, node: &Node) {
    let lease = node.fence.lease;
    assert_eq!(run.done(RemoveOwnerRows { lease, limit: 1000 }, None).await.value, 0);
    let (mesh, rid, lifecycle) = (node.fence.mesh.clone(), node.fence.rid.clone(), node.fence.lifecycle);
    run.done(RemoveDescriptor { mesh, rid, lifecycle, lease }, None).await;
    assert!(run.done(ReleaseLease { lease }, None).await.value);
    run.done(Sweep { limit: 1000 }, None).await;
}

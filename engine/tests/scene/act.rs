//! What the application of a host calls, and its answers.

use std::time::Duration;

use bytes::Bytes;
use spotmesh::input::{ActorCall, CallId, Command, CreateActor, CreateMode, Input, TurnId};
use spotmesh::model::{ActorId, ActorRef, ErrorKind, PacketName, StableType, Weight};
use spotmesh::output::Answer;
use spotmesh::wire::{Metadata, PayloadCodec};

use super::Scene;

/// A call of a host's application.
pub type Call = (usize, CallId);

/// The default timeout of a create and of a request.
pub const TIMEOUT: Duration = Duration::from_secs(30);

impl Scene {
    pub fn call(&mut self, host: usize, command: Command) -> Call {
        self.call_from(host, None, command)
    }

    /// A call made by the handler of a turn, where there is one.
    pub fn call_from(&mut self, host: usize, from: Option<TurnId>, command: Command) -> Call {
        let seat = &mut self.seats[host];
        seat.next_call += 1;
        // Never the number of a call of an earlier process.
        let call = CallId(u64::from(seat.run) << 32 | seat.next_call);
        self.tell(host, Input::Called { call, from, command });
        self.settle();
        (host, call)
    }

    /// GetOrCreate of a `counter` with the default timeout.
    pub fn create(&mut self, host: usize, id: &str, request: &str) -> Call {
        self.create_within(host, id, request, TIMEOUT)
    }

    pub fn create_within(&mut self, host: usize, id: &str, request: &str, timeout: Duration) -> Call {
        let request = Bytes::copy_from_slice(request.as_bytes());
        self.create_as(host, id, CreateMode::GetOrCreate, "counter", request, timeout)
    }

    /// Exclusive Create of a `counter`.
    pub fn create_exclusive(&mut self, host: usize, id: &str, request: &str) -> Call {
        let request = Bytes::copy_from_slice(request.as_bytes());
        self.create_as(host, id, CreateMode::Create, "counter", request, TIMEOUT)
    }

    pub fn create_as(
        &mut self,
        host: usize,
        id: &str,
        mode: CreateMode,
        stable_type: &str,
        request: Bytes,
        timeout: Duration,
    ) -> Call {
        let create = CreateActor {
            id: ActorId::new(id).unwrap(),
            stable_type: StableType::new(stable_type).unwrap(),
            mode,
            mesh: None,
            request,
            timeout,
        };
        self.call(host, Command::CreateActor(create))
    }

    pub fn request(&mut self, host: usize, id: &str, payload: &str) -> Call {
        self.request_within(host, id, payload, Duration::from_secs(5))
    }

    pub fn request_within(&mut self, host: usize, id: &str, payload: &str, timeout: Duration) -> Call {
        let call = ActorCall {
            target: ActorId::new(id).unwrap(),
            packet: PacketName::new("say").unwrap(),
            version: 1,
            codec: PayloadCodec::Postcard,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            metadata: Metadata::none(),
            timeout,
        };
        self.call(host, Command::RequestActor(call))
    }

    pub fn find(&mut self, host: usize, id: &str) -> Call {
        let id = ActorId::new(id).unwrap();
        self.call(host, Command::FindActor { id, timeout: Duration::from_secs(5) })
    }

    pub fn set_weight(&mut self, host: usize, weight: i64) {
        let weight = Weight::new(weight).unwrap();
        let call = self.call(host, Command::SetPlacementWeight { mesh: None, weight });
        assert_eq!(self.answer(call), Some(&Answer::Set));
    }

    pub fn shutdown(&mut self, host: usize, timeout: Duration) -> Call {
        self.call(host, Command::Shutdown { timeout })
    }

    /// The caller stops waiting.
    pub fn drop_call(&mut self, call: Call) {
        self.dropped_calls.push(call);
        self.tell(call.0, Input::CallDropped { call: call.1 });
        self.settle();
    }

    pub fn answer(&self, call: Call) -> Option<&Answer> {
        self.answers.get(&call)
    }

    #[track_caller]
    pub fn expect_answer(&self, call: Call) -> &Answer {
        self.answer(call).unwrap_or_else(|| panic!("{call:?} has no answer"))
    }

    #[track_caller]
    pub fn expect_no_answer(&self, call: Call) {
        assert_eq!(self.answer(call), None, "{call:?} has an answer");
    }

    /// The object and the reply of a call that created.
    #[track_caller]
    pub fn expect_created(&self, call: Call) -> (ActorRef, String) {
        match self.expect_answer(call) {
            Answer::Created { actor, reply } => (actor.clone(), text(reply.as_ref())),
            other => panic!("expected Created, found {other:?}"),
        }
    }

    #[track_caller]
    pub fn expect_existing(&self, call: Call) -> ActorRef {
        match self.expect_answer(call) {
            Answer::Existing { actor } => actor.clone(),
            other => panic!("expected Existing, found {other:?}"),
        }
    }

    #[track_caller]
    pub fn expect_rejected(&self, call: Call) -> (ActorRef, String) {
        match self.expect_answer(call) {
            Answer::Rejected { actor, reply } => (actor.clone(), text(reply.as_ref())),
            other => panic!("expected Rejected, found {other:?}"),
        }
    }

    #[track_caller]
    pub fn expect_failed(&self, call: Call, kind: ErrorKind) {
        match self.expect_answer(call) {
            Answer::Failed(error) => assert_eq!(error.kind(), kind, "{error:?}"),
            other => panic!("expected {kind:?}, found {other:?}"),
        }
    }

    #[track_caller]
    pub fn expect_replied(&self, call: Call, reply: &str) {
        match self.expect_answer(call) {
            Answer::Replied(bytes) => assert_eq!(text(Some(bytes)), reply),
            other => panic!("expected a reply, found {other:?}"),
        }
    }

    /// Asks a host whether the Actor can be found.
    pub fn is_found(&mut self, host: usize, id: &str) -> bool {
        let call = self.find(host, id);
        match self.expect_answer(call) {
            Answer::Found(found) => found.is_some(),
            other => panic!("expected Found, found {other:?}"),
        }
    }
}

fn text(bytes: Option<&Bytes>) -> String {
    bytes.map_or(String::new(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

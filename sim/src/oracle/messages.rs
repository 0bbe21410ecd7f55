//! Messages: run at most once, submitted to one target, in order, answered by who ran them (MODEL-108, -115).

use std::collections::BTreeMap;

use spotmesh::input::TurnId;
use spotmesh::link::LinkId;
use spotmesh::model::ObjectKey;
use spotmesh::output::Turn;

use super::Verdicts;
use super::calls::{Asked, Calls};
use crate::agenda::Nanos;
use crate::place::RunOf;
use crate::script::Uid;

/// How a message reached its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Over this link of the sender.
    Link(RunOf, LinkId),
    /// Inside one process.
    Local(RunOf),
}

#[derive(Debug, Clone)]
struct Sent {
    by: RunOf,
    link: LinkId,
    place: u64,
}

/// One run of a message.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Where.
    pub on: RunOf,
    /// In which turn.
    pub turn: TurnId,
    /// When it began.
    pub at: Nanos,
    /// The counter it replied with, once it ended in a reply.
    pub counter: Option<u64>,
}

/// Messages of a run.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    sent: BTreeMap<Uid, Sent>,
    ran: BTreeMap<Uid, Ran>,
    next_place: u64,
    /// Newest message per way and object that began to run.
    newest_run: BTreeMap<(Way, ObjectKey), (u64, Uid)>,
    /// Newest message per link and object that was submitted.
    newest_sent: BTreeMap<(RunOf, LinkId, ObjectKey), Uid>,
}

impl Messages {
    /// A process hands a message to a link.
    pub fn sent(
        &mut self,
        verdicts: &mut Verdicts,
        calls: &Calls,
        at: Nanos,
        by: RunOf,
        link: LinkId,
        uid: Uid,
    ) {
        let Some((key, source)) = message_of(calls, uid) else {
            verdicts.report("messages", at, format!("{by} sends {uid:?}, which nobody submitted"));
            return;
        };
        if source != by {
            verdicts.report("messages", at, format!("{by} sends {uid:?} of {source}"));
        }
        if let Some(before) = self.sent.get(&uid) {
            let text = format!("{by} sends {uid:?} on {link:?} again, before on {:?}", before.link);
            verdicts.report("resubmitted", at, text);
        }
        if let Some(ran) = self.ran.get(&uid) {
            verdicts.report(
                "resubmitted",
                at,
                format!("{by} sends {uid:?}, which ran on {} already", ran.on),
            );
        }
        let newest = self.newest_sent.entry((by, link, key)).or_insert(uid);
        if *newest > uid {
            let text = format!("{by} submits {uid:?} on {link:?} after {newest:?}, which was called later");
            verdicts.report("order", at, text);
        }
        *newest = uid;
        self.next_place += 1;
        self.sent.insert(uid, Sent { by, link, place: self.next_place });
    }

    /// A message begins to run.
    pub fn started(
        &mut self,
        verdicts: &mut Verdicts,
        calls: &Calls,
        at: Nanos,
        on: RunOf,
        turn: &Turn,
        uid: Uid,
    ) {
        let ran_key = &turn.key;
        let Some((key, source)) = message_of(calls, uid) else {
            verdicts.report("messages", at, format!("{on} runs {uid:?}, which nobody submitted"));
            return;
        };
        if key != *ran_key {
            verdicts.report("messages", at, format!("{on} runs {uid:?} on {ran_key}, it was for {key}"));
        }
        if let Some(before) = self.ran.get(&uid) {
            let text = format!("{on} runs {uid:?} for {key} again, before on {} at {}", before.on, before.at);
            verdicts.report("twice", at, text);
        }
        let (way, place) = match self.sent.get(&uid) {
            Some(sent) => (Way::Link(sent.by, sent.link), sent.place),
            None if source == on => (Way::Local(on), uid.0),
            None => {
                verdicts.report(
                    "messages",
                    at,
                    format!("{on} runs {uid:?} of {source}, which never left it"),
                );
                return;
            }
        };
        let newest = self.newest_run.entry((way, key)).or_insert((place, uid));
        if newest.0 > place {
            verdicts.report("order", at, format!("{on} runs {uid:?} after {:?}, which came later", newest.1));
        }
        *newest = (place, uid);
        self.ran.insert(uid, Ran { on, turn: turn.turn, at, counter: None });
    }

    /// A message's handler replied with this counter.
    pub fn replied(&mut self, uid: Uid, counter: u64) {
        if let Some(ran) = self.ran.get_mut(&uid) {
            ran.counter = Some(counter);
        }
    }

    /// A requester got a reply: the message ran, once, and replied just this.
    pub fn answered(&mut self, verdicts: &mut Verdicts, at: Nanos, uid: Uid, counter: u64) {
        match self.ran.get(&uid) {
            Some(ran) if ran.counter == Some(counter) => {}
            found => verdicts.report(
                "messages",
                at,
                format!("{uid:?} was answered with counter {counter}, its run was {found:?}"),
            ),
        }
    }

    /// The link a message was handed to, if it left its process.
    #[must_use]
    pub fn link_of(&self, uid: Uid) -> Option<LinkId> {
        self.sent.get(&uid).map(|sent| sent.link)
    }

    /// The run of a message, if it ran.
    #[must_use]
    pub fn ran(&self, uid: Uid) -> Option<&Ran> {
        self.ran.get(&uid)
    }
}

fn message_of(calls: &Calls, uid: Uid) -> Option<(ObjectKey, RunOf)> {
    let call = calls.get(uid)?;
    match &call.asked {
        Asked::Message { key, .. } => Some((key.clone(), call.by)),
        _ => None,
    }
}

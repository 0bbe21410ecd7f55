use super::cuts::{Cuts, Phase};
use super::frames::Frame;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is passed on.
    Pass,
    /// It is kept back: the answer it belongs to will be cut in half.
    Hold,
    /// It is dropped and the connection is cut, and what was kept back with it.
    Cut(Phase),
    /// It completes the answer, of which the first half is passed on before the connection is cut.
    CutHalf,
}

/// How far a connection's operation is, from the messages of both sides.
#[derive(Debug, Default)]
pub(super) struct Session {
    logged_in: bool,
    /// Requests whose ReadyForQuery is to come.
    unanswered: u64,
    /// Messages of a request whose end is to come.
    open_request: bool,
    operation: Option<Operation>,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    /// Requests from before it (closed statements) whose ReadyForQuery comes before its answer.
    before: u64,
    answered: bool,
    held: bool,
}

impl Session {
    pub(super) fn client_sends(&mut self, frame: &Frame, cuts: &Cuts) -> Verdict {
        if !self.logged_in {
            return Verdict::Pass;
        }
        let tag = frame.tag();
        // Clients close statements and connections, and flush, on their own account: that is no operation.
        if self.operation.is_none() && !matches!(tag, b'C' | b'S' | b'H' | b'X') {
            if cuts.take(Phase::BeforeSend) {
                return Verdict::Cut(Phase::BeforeSend);
            }
            self.operation = Some(Operation { before: self.unanswered, answered: false, held: false });
        }
        // Query, Sync and FunctionCall end a request.
        self.open_request = !matches!(tag, b'Q' | b'S' | b'F');
        self.unanswered += u64::from(!self.open_request);
        Verdict::Pass
    }

    pub(super) fn server_sends(&mut self, frame: &Frame, cuts: &Cuts) -> Verdict {
        let ready = frame.tag() == b'Z';
        if !self.logged_in {
            self.logged_in = ready;
            return Verdict::Pass;
        }
        if ready {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        let Some(operation) = &mut self.operation else { return Verdict::Pass };
        if operation.before > 0 {
            operation.before -= u64::from(ready);
            return Verdict::Pass;
        }
        // Notices, parameters and notifications come at any time and answer nothing.
        let answers = !matches!(frame.tag(), b'N' | b'S' | b'A');
        if answers && !operation.answered {
            operation.answered = true;
            if cuts.take(Phase::AfterSend) {
                return Verdict::Cut(Phase::AfterSend);
            }
            operation.held = cuts.take(Phase::MidReply);
        }
        if frame.tag() == b'C' && frame.body() == b"COMMIT\0" && cuts.take(Phase::AfterCommit) {
            return Verdict::Cut(Phase::AfterCommit);
        }
        let held = operation.held;
        let ends = ready && self.unanswered == 0 && !self.open_request;
        if ends {
            self.operation = None;
        }
        match (held, ends) {
            (true, true) => Verdict::CutHalf,
            (true, false) => Verdict::Hold,
            (false, _) => Verdict::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::frame;
    use super::*;

    fn logged_in() -> Session {
        let mut session = Session::default();
        let cuts = Cuts::new();
        cuts.arm(Phase::AfterSend, 0, 9);
        for tag in [b'R', b'S', b'K', b'Z'] {
            assert_eq!(
                session.server_sends(&frame(tag, b"I"), &cuts),
                Verdict::Pass,
                "logging in is no operation"
            );
        }
        session
    }

    /// The verdicts over a script of messages: `>` from the client, `<` from the server; `C` of the server is `COMMIT`.
    fn verdicts(session: &mut Session, cuts: &Cuts, script: &str) -> Vec<Verdict> {
        script
            .split_whitespace()
            .map(|step| {
                let tag = step.as_bytes()[1];
                let body: &[u8] = if step == "<C" { b"COMMIT\0" } else { b"I" };
                match step.as_bytes()[0] {
                    b'>' => session.client_sends(&frame(tag, body), cuts),
                    _ => session.server_sends(&frame(tag, body), cuts),
                }
            })
            .collect()
    }

    /// Two pipelined requests with their answers, the second one a commit.
    const PIPELINED: &str = ">B >E >S >B >E >S <2 <T <Z <2 <C <Z";

    fn armed(phase: Phase) -> Cuts {
        let cuts = Cuts::new();
        cuts.arm(phase, 0, 1);
        cuts
    }

    #[test]
    fn nothing_is_cut_unless_armed() {
        let verdicts = verdicts(&mut logged_in(), &Cuts::new(), PIPELINED);
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
    }

    #[test]
    fn before_send_falls_on_the_first_message_of_an_operation() {
        assert_eq!(
            verdicts(&mut logged_in(), &armed(Phase::BeforeSend), ">B"),
            [Verdict::Cut(Phase::BeforeSend)]
        );
        let mut session = logged_in();
        verdicts(&mut session, &Cuts::new(), ">B >E");
        let later = verdicts(&mut session, &armed(Phase::BeforeSend), ">S >B >E >S <2 <Z <2 <Z");
        assert!(later.iter().all(|verdict| *verdict == Verdict::Pass), "the operation goes on: {later:?}");
        assert_eq!(
            verdicts(&mut session, &armed(Phase::BeforeSend), ">Q"),
            [Verdict::Cut(Phase::BeforeSend)],
            "it is over"
        );
    }

    #[test]
    fn closing_a_statement_is_no_operation() {
        for phase in Phase::ALL {
            let closing = verdicts(&mut logged_in(), &armed(phase), ">C >S <3 <Z >X");
            assert!(closing.iter().all(|verdict| *verdict == Verdict::Pass), "{phase:?}: {closing:?}");
        }
        let mixed = verdicts(&mut logged_in(), &armed(Phase::AfterSend), ">C >S >B >E >S <3 <Z <2");
        assert_eq!(mixed.last(), Some(&Verdict::Cut(Phase::AfterSend)));
        assert!(mixed[..7].iter().all(|verdict| *verdict == Verdict::Pass), "{mixed:?}");
    }

    #[test]
    fn after_send_falls_on_the_first_answer_and_not_on_a_notice() {
        let all = verdicts(&mut logged_in(), &armed(Phase::AfterSend), ">Q <N <T");
        assert_eq!(all, [Verdict::Pass, Verdict::Pass, Verdict::Cut(Phase::AfterSend)]);
    }

    #[test]
    fn after_commit_falls_on_the_word_of_the_server() {
        let all = verdicts(&mut logged_in(), &armed(Phase::AfterCommit), PIPELINED);
        assert_eq!(all[10], Verdict::Cut(Phase::AfterCommit));
        assert!(all[..10].iter().all(|verdict| *verdict == Verdict::Pass));
        let cuts = armed(Phase::AfterCommit);
        let mut session = logged_in();
        session.client_sends(&frame(b'Q', b"COMMIT\0"), &cuts);
        let refused = session.server_sends(&frame(b'C', b"ROLLBACK\0"), &cuts);
        assert_eq!(refused, Verdict::Pass, "nothing was committed");
    }

    #[test]
    fn mid_reply_holds_the_whole_answer() {
        let all = verdicts(&mut logged_in(), &armed(Phase::MidReply), PIPELINED);
        assert_eq!(all[6..11], [Verdict::Hold; 5]);
        assert_eq!(all[11], Verdict::CutHalf);
    }
}

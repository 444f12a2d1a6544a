use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use super::super::{job_for_tests, play, setup_for_tests};
use super::*;
use crate::check::stamp;
use crate::control::{Crowd, Role};
use crate::protocol::Pipe;
use crate::workload::Workload;

const SIZE: usize = 64;

fn message(client: usize, count: u64) -> [u8; SIZE] {
    let mut message = [0x5A; SIZE];
    stamp(&mut message, first_of(client) + count);
    message
}

/// A server to which `clients` send so many messages each in turn, and which then knows that this is all.
struct Script<'a> {
    turns: VecDeque<Vec<[u8; SIZE]>>,
    answered: Vec<bool>,
    sent: u64,
    drains: &'a [AtomicU64],
}

impl Server for Script<'_> {
    fn address(&self) -> String {
        String::new()
    }

    fn accept(&mut self, _timeout: std::time::Duration) -> io::Result<()> {
        Ok(())
    }

    fn serve(&mut self, sink: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<usize> {
        let turn = self.turns.pop_front().unwrap_or_default();
        self.answered.extend(turn.iter().map(|message| sink(message)));
        if self.turns.is_empty() {
            self.drains.iter().for_each(|drain| drain.store(self.sent, Ordering::Relaxed));
        }
        Ok(turn.len())
    }
}

fn served(workload: Workload) -> (SideReport, Vec<bool>) {
    let job = Job {
        role: Role::Receiver,
        workload,
        crowd: Some(Crowd { clients: 3, number: 0 }),
        ..job_for_tests(setup_for_tests(SIZE))
    };
    let drains = [const { AtomicU64::new(NOT_DRAINING) }; 3];
    let turns = (0..20).map(|count| (0..3).map(|client| message(client, count)).collect()).collect();
    let mut server = Script { turns, answered: Vec::new(), sent: 20, drains: &drains };
    let resume = AtomicBool::new(false);
    let around = Surroundings { drain: &drains[0], resume: &resume, progress: &mut |_| {} };
    let report = serve(&job, &mut server, &drains, around).unwrap();
    (report, server.answered)
}

#[test]
fn a_server_answers_questions_and_keeps_what_goes_one_way() {
    for (workload, answers) in [(Workload::PingPong, true), (Workload::Rate, false)] {
        let (report, answered) = served(workload);
        assert_eq!(answered, [answers; 60]);
        let whole = CheckCounts { messages: 60, bytes: 60 * SIZE as u64, ..CheckCounts::default() };
        assert_eq!(report.counts, whole);
    }
}

#[test]
fn what_each_client_misses_is_lost_and_what_is_nobodys_is_damaged() {
    let mut clients = Clients::new(SIZE, 3);
    let come = [(0, 0), (1, 0), (0, 1), (1, 2), (1, 2), (1, 1), (2, 1), (7, 0)];
    come.iter().for_each(|&(client, count)| clients.observe(&message(client, count)));
    assert_eq!(clients.counts().messages, 6, "the second copy is none");
    // Client 2's first, and the last of each but the second's.
    let counts = clients.finish(&[3, 3, 3]);
    let expected = CheckCounts {
        messages: 6,
        bytes: 6 * SIZE as u64,
        lost: 1 + 2,
        duplicated: 1,
        reordered: 1,
        damaged: 1,
    };
    assert_eq!(counts, expected);
}

#[test]
fn the_window_counts_for_each_client_what_came_while_it_was_open() {
    let crowd = Some(Crowd { clients: 2, number: 0 });
    let job = Job { warmup_ns: 100, duration_ns: 1_000, crowd, ..job_for_tests(setup_for_tests(SIZE)) };
    let (mut clients, mut window) = (Clients::new(SIZE, 2), Window::new(&job, 0));
    let mut sent = [0; 2];
    let mut come = |clients: &mut Clients, client: usize, count: u64| {
        for _ in 0..count {
            clients.observe(&message(client, sent[client]));
            sent[client] += 1;
        }
    };
    let mut tick = |clients: &mut Clients, now_ns| {
        let CheckCounts { messages, bytes, .. } = clients.counts();
        clients.tick(&mut window, Mark { now_ns, messages, bytes });
    };
    come(&mut clients, 0, 5);
    tick(&mut clients, 50);
    tick(&mut clients, 100);
    come(&mut clients, 0, 7);
    tick(&mut clients, 500);
    come(&mut clients, 1, 2);
    assert!(clients.in_window().is_empty(), "it is not closed yet");
    tick(&mut clients, 1_100);
    come(&mut clients, 1, 100);
    tick(&mut clients, 2_000);
    assert_eq!(clients.in_window(), [7, 2]);
}

/// Answers each question, the fifth with another client's answer first.
#[derive(Default)]
struct Confused {
    asked: u64,
    waiting: VecDeque<Vec<u8>>,
}

impl Pipe for Confused {
    fn send(&mut self, question: &[u8]) -> io::Result<bool> {
        self.asked += 1;
        if self.asked == 5 {
            self.waiting.push_back(message(2, 4).to_vec());
        }
        self.waiting.push_back(question.to_vec());
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let Some(answer) = self.waiting.pop_front() else { return Ok(0) };
        sink(&answer);
        Ok(1)
    }
}

#[test]
fn a_client_goes_on_beyond_its_window_and_sees_that_an_answer_was_for_another_one() {
    let crowd = Some(Crowd { clients: 4, number: 3 });
    let workload = Workload::PingPong;
    let job = Job { workload, crowd, duration_ns: 1_000_000, ..job_for_tests(setup_for_tests(SIZE)) };
    let (drain, resume) = (AtomicU64::new(NOT_DRAINING), AtomicBool::new(false));
    let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| {} };
    let mut pipe = Confused::default();
    let report = play(&job, &mut pipe, true, around).unwrap();
    assert_eq!(report.counts, CheckCounts { duplicated: 1, ..report.counts });
    assert_eq!(
        (report.sent, report.counts.messages),
        (pipe.asked, pipe.asked),
        "numbered from its own first"
    );
    let in_window: u64 = report.rtt_ns.iter().map(|(_, count)| count).sum();
    assert!(report.messages < report.sent && in_window < report.sent, "{report:?}");
}

#[test]
fn all_clients_add_up_by_rate_and_their_times_are_one_histogram() {
    let report = |window_ns, messages, rtt_ns| SideReport {
        window_ns,
        messages,
        sent: messages + 1,
        rtt_ns: vec![(rtt_ns, messages)],
        notes: vec!["not pinned".to_owned()],
        ..SideReport::default()
    };
    let all = together(&[report(1_000, 100, 10), report(2_000, 300, 30), SideReport::default()]);
    assert_eq!((all.window_ns, all.messages, all.sent), (2_000, 500, 402));
    assert_eq!(all.messages_by_client, [200, 300, 0]);
    assert_eq!(all.rtt_ns, [(10, 100), (30, 300)]);
    assert_eq!(all.notes, ["not pinned"]);
    assert_eq!(together(&[]), SideReport::default());
}

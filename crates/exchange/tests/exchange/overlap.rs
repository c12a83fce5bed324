//! An exchange with overlap ends with the same bits as one without, and sends groups before the
//! other gradients are known.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::{RATE, Run, Sgd, bits, connected, exchange, gradients, specs, suits};
use gradwire::State;
use gradwire_exchange::{
    DistributedOptimizer, Endpoint, ExchangeError, Header, Operation, Participation, Phase,
    ReplicatedOptimizer, StepInput, Transport, in_process,
};

const SIZES: [usize; 5] = [300, 3, 0, 20_000, 4500];
const STEPS: u64 = 4;

/// How a rank hands gradients to a sink.
type Hands = fn(&dyn gradwire_exchange::GradientSink, usize, &[Vec<f32>]);

fn groups() -> Vec<Vec<usize>> {
    vec![vec![4], vec![3, 2], vec![0, 1]]
}

/// One rank's end of an exchange with overlap.
fn overlapped(
    transport: impl Transport + 'static,
    run: &Run,
    groups: Vec<Vec<usize>>,
) -> Result<ReplicatedOptimizer, ExchangeError> {
    ReplicatedOptimizer::overlapped(Box::new(transport), &run.setup(), groups, Box::new(Sgd))
}

/// A worker at the end of its steps, in bits.
#[derive(Debug, PartialEq)]
struct End {
    parameters: Vec<Vec<u32>>,
    /// The positions that the last messages carried, and the residuals.
    sent: Vec<Vec<u32>>,
    bytes: usize,
}

/// Every worker after some steps.
fn ends(run: &Run, hands: Hands) -> Vec<End> {
    run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let (mut sent, mut bytes) = (Vec::new(), 0);
        for step in 0..STEPS {
            let gradients = gradients(&run.tensors, rank, step);
            if let Some(early) = exchange.gradient_sink(step) {
                hands(&*early, rank, &gradients);
            }
            exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters).unwrap();
            bytes += (0..SIZES.len()).map(|index| exchange.message_bytes(index)).sum::<usize>();
        }
        for index in 0..SIZES.len() {
            sent.push(exchange.sent(index).map_or(vec![u32::MAX], <[u32]>::to_vec));
            exchange.residual(index, &mut |piece| sent.push(bits(&[piece.to_vec()]).concat()));
        }
        exchange.control().check(STEPS, &parameters).unwrap();
        End { parameters: bits(&parameters), sent, bytes }
    })
}

/// Nothing; the last two tensors; all, from the last on; all from the first on, on some ranks only.
const HANDS: [Hands; 4] = [
    |_, _, _| {},
    |early, _, gradients| [4, 3].into_iter().for_each(|at| early.ready(at, &gradients[at])),
    |early, _, gradients| (0..5).rev().for_each(|at| early.ready(at, &gradients[at])),
    |early, rank, gradients| {
        (0..5).take(5 * rank).for_each(|at| early.ready(at, &gradients[at]));
    },
];

#[test]
fn ranks_end_as_if_nothing_had_begun_early() {
    for name in ["all-gather", "all-reduce"] {
        for spec in specs().into_iter().filter(|spec| suits(name, spec)) {
            if spec.compressor().keeps_squares() {
                continue;
            }
            let mut run = Run::new(exchange(name), 3, &spec, &SIZES);
            run.momentum = true;
            // Changes and integers need equal weights.
            let equal = spec.sends_changes() || spec.properties().needs_equal_weights;
            let weights = if equal { [1.0; 3] } else { [1.0, 3.0, 2.0] };
            run.participation = Participation::weighted(weights.to_vec());
            let plain = ends(&run, HANDS[0]);
            run.groups = Some(groups());
            for hands in HANDS {
                assert!(ends(&run, hands) == plain, "{name}, {spec}");
            }
        }
    }
}

#[test]
fn slices_of_each_tensor_do_not_depend_on_who_is_early() {
    for text in ["none", "3lc", "topk:ratio=0.1"] {
        let mut run = Run::of("scatter-reduce", 3, text, &SIZES);
        run.groups = Some(groups());
        let late = ends(&run, HANDS[0]);
        assert!(late.iter().all(|end| end.parameters == late[0].parameters), "{text}");
        for hands in HANDS {
            assert!(ends(&run, hands) == late, "{text}");
        }
    }
}

#[test]
fn what_comes_late_twice_or_wrong_is_ignored() {
    let mut run = Run::of("all-gather", 2, "3lc", &SIZES);
    run.groups = Some(groups());
    let results = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let gradients = gradients(&run.tensors, rank, 0);
        let early = exchange.gradient_sink(0).unwrap();
        early.ready(3, &gradients[4]);
        early.ready(5, &gradients[4]);
        early.ready(4, &gradients[4]);
        early.ready(4, &vec![1.0; 4500]);
        let report = exchange.step(StepInput::new(0, RATE, &gradients), &mut parameters).unwrap();
        early.ready(4, &gradients[4]);
        assert!(report.background > Duration::ZERO);
        bits(&parameters)
    });
    run.groups = None;
    let plain = &run.steps(1)[0];
    for result in results {
        assert!(result == bits(&plain.parameters));
    }
}

#[test]
fn a_step_of_which_groups_have_left_must_end_before_another() {
    let mut run = Run::of("all-gather", 1, "none", &SIZES);
    run.groups = Some(groups());
    run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let gradients = gradients(&run.tensors, rank, 0);
        // Nothing has left yet: another step may begin.
        exchange.gradient_sink(0).unwrap();
        let early = exchange.gradient_sink(1).unwrap();
        early.ready(4, &gradients[4]);
        assert!(exchange.gradient_sink(1).is_none() && exchange.gradient_sink(2).is_none());
        let error = exchange
            .step(StepInput::new(2, RATE, &gradients), &mut parameters)
            .unwrap_err()
            .to_string();
        assert!(error.contains("step 2 begins while step 1 is in progress"), "{error}");
        exchange.step(StepInput::new(1, RATE, &gradients), &mut parameters).unwrap();
        exchange.gradient_sink(2).unwrap();
    });
}

#[test]
fn a_step_of_which_nothing_has_left_may_begin_again() {
    let mut run = Run::of("all-gather", 1, "none", &SIZES);
    run.groups = Some(groups());
    let ends = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let gradients = gradients(&run.tensors, rank, 0);
        // A gradient in a group that waits for the one before it; then its backward pass is
        // abandoned.
        exchange.gradient_sink(0).unwrap().ready(3, &vec![9.0; 20_000]);
        exchange.gradient_sink(0).unwrap().ready(3, &gradients[3]);
        run.step(rank, 0, exchange, &mut parameters);
        bits(&parameters)
    });
    run.groups = None;
    assert!(ends[0] == bits(&run.steps(1)[0].parameters));
}

#[test]
fn what_others_have_saved_does_not_come_back() {
    for groups in [None, Some(groups())] {
        let mut run = Run::of("all-gather", 1, "3lc", &SIZES);
        run.groups = groups;
        run.each(|rank, exchange| {
            let (mut saved, mut again) = (State::new(), State::new());
            run.step(rank, 0, exchange, &mut run.initial.clone());
            exchange.save(&mut saved).unwrap();
            let own = saved.clone();
            saved.set_number("a trainer's", 7);
            saved.set_setting("a trainer's", "own".to_owned());
            exchange.restore(&saved).unwrap();
            exchange.save(&mut again).unwrap();
            assert_eq!(again, own);
        });
    }
}

/// A transport that reports its sends, or panics at one.
struct Telling {
    inner: in_process::InProcess,
    breaks: bool,
    sends: mpsc::Sender<(Phase, usize)>,
    flushes: Arc<AtomicUsize>,
}

impl Transport for Telling {
    fn endpoint(&self) -> &Endpoint {
        self.inner.endpoint()
    }

    fn send(
        &mut self,
        to: usize,
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        assert!(!self.breaks || operation.phase != Phase::Gather, "the thread dies");
        let _ = self.sends.send((operation.phase, payload.len()));
        self.inner.send(to, operation, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        self.inner.recv_any(from, during, until, into)
    }

    fn flush(&mut self) -> Result<(), ExchangeError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }

    fn abort(&mut self, culprit: usize) {
        self.inner.abort(culprit);
    }
}

#[test]
fn a_group_leaves_as_soon_as_it_is_complete() {
    let run = Run::of("all-gather", 2, "none", &SIZES);
    let order = Arc::new(Mutex::new(Vec::new()));
    connected(2, |rank, inner| {
        let (sends, sent) = mpsc::channel();
        let flushes = Arc::new(AtomicUsize::new(0));
        let flushed = Arc::clone(&flushes);
        let transport = Telling { inner, breaks: false, sends, flushes };
        let mut exchange = overlapped(transport, &run, groups()).unwrap();
        // Without those of the setup.
        flushed.store(0, Ordering::Relaxed);
        let (mut parameters, gradients) = (run.initial.clone(), gradients(&run.tensors, rank, 0));
        // Waits until a message of a group has left; this long only if none ever does.
        let left = || loop {
            match sent.recv_timeout(Duration::from_secs(60)).expect("a group leaves early") {
                (Phase::Gather, bytes) => return bytes,
                _ => continue,
            }
        };
        let early = exchange.gradient_sink(0).unwrap();
        // Complete, but behind one that is not.
        early.ready(0, &gradients[0]);
        early.ready(1, &gradients[1]);
        early.ready(4, &gradients[4]);
        let first = left();
        early.ready(2, &gradients[2]);
        early.ready(3, &gradients[3]);
        let others = [left(), left()];
        order.lock().unwrap().push([first, others[0], others[1]]);
        exchange.step(StepInput::new(0, RATE, &gradients), &mut parameters).unwrap();
        // Once, behind the last group, for an engine that sends only while it is called.
        assert_eq!(flushed.load(Ordering::Relaxed), 1);
        assert!(sent.try_iter().all(|(phase, _)| phase != Phase::Gather));
    });
    // Messages of 4 bytes an element, and their lengths.
    let bytes = [4500, 20_000, 303].map(|elements| 4 * elements);
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 2);
    for found in order.iter() {
        let near = |(found, bytes): (&usize, usize)| (bytes..bytes + 10).contains(found);
        assert!(found.iter().zip(bytes).all(near), "{found:?}");
    }
}

#[test]
fn a_panic_of_the_thread_goes_on_where_it_is_waited_for() {
    let run = Run::of("all-gather", 2, "none", &SIZES);
    connected(2, |rank, inner| {
        let (sends, flushes) = (mpsc::channel().0, Arc::default());
        let transport = Telling { inner, breaks: rank == 0, sends, flushes };
        let mut exchange = overlapped(transport, &run, groups()).unwrap();
        let step = || run.try_step(rank, 0, &mut exchange, &mut run.initial.clone());
        match catch_unwind(AssertUnwindSafe(step)) {
            Err(panic) => assert_eq!((rank, *panic.downcast().unwrap()), (0, "the thread dies")),
            Ok(result) => {
                let error = result.unwrap_err();
                let lost = matches!(error, ExchangeError::PeerLost { peer: 0, .. });
                assert!(lost && rank == 1, "{rank}: {error}");
            }
        }
    });
}

/// The error of a run of one rank.
fn refusal(name: &str, spec: &str, change: impl Fn(&mut Run, &mut Vec<Vec<usize>>)) -> String {
    let mut run = Run::of(name, 1, spec, &SIZES);
    let mut groups = groups();
    change(&mut run, &mut groups);
    let transport = in_process::connect(1, in_process::Options::default()).remove(0);
    overlapped(transport, &run, groups).err().expect("refused").to_string()
}

#[test]
fn what_does_not_go_group_by_group_is_refused() {
    for (name, spec) in [("hierarchical", "none"), ("sparse-all-reduce", "topk")] {
        let message = refusal(name, spec, |_, _| {});
        assert!(message.contains(name) && message.contains("scatter-reduce"), "{message}");
    }
    assert!(refusal("all-gather", "variance", |_, _| {}).contains("needs whole gradients"));
    let message = refusal("all-gather", "none", |run, _| {
        run.participation = Participation::equal(1).with_participants(1, 0.5, 0);
    });
    assert!(message.contains("every rank take part"), "{message}");
    let message = refusal("all-gather", "none", |_, groups| drop(groups.pop()));
    assert!(message.contains("the model's 5 tensors once"), "{message}");
}

#[test]
fn ranks_with_other_groups_are_told_so() {
    let run = Run::of("all-gather", 2, "none", &SIZES);
    connected(2, |rank, transport| {
        let mut groups = groups();
        if rank == 1 {
            groups.reverse();
        }
        let error = overlapped(transport, &run, groups).err().expect("refused").to_string();
        assert!(error.contains("rank 1 was started with overlapped in groups"), "{error}");
    });
}

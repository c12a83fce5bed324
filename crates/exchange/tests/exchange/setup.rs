//! What cannot work is refused at the start, with the reason and the remedy.

use crate::common::{Run, Sgd, connected, exchange};
use gradwire::Tensor;
use gradwire_exchange::{
    GroupConfig, Operation, Participation, Phase, ReplicatedOptimizer, Role, StepInput, Transport,
    in_process, launch,
};

fn refusal(run: &Run) -> String {
    let join = |transport| Role::join(transport, &run.setup(), || Box::new(Sgd));
    launch(&run.setup(), run.options, join).expect_err("refused").to_string()
}

fn run(name: &str, spec: &str) -> Run {
    Run::of(name, 3, spec, &[10, 20])
}

#[test]
fn all_reduce_refuses_what_does_not_add() {
    let message = refusal(&run("all-reduce", "3lc:s=1.5"));
    for part in ["3lc:s=1.5", "do not add", "all-gather or scatter-reduce", "fp16"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn sparse_all_reduce_refuses_what_sends_all() {
    let message = refusal(&run("sparse-all-reduce", "3lc:s=1.5"));
    for part in ["3lc:s=1.5", "carry all", "all-gather", "scatter-reduce", "server", "topk"] {
        assert!(message.contains(part), "{message}");
    }
    // It would refuse these messages, too.
    assert!(!message.contains("use all-reduce"), "{message}");
    let message = refusal(&run("sparse-all-reduce", "none"));
    let works = "use all-reduce, all-gather, scatter-reduce or server, or";
    assert!(message.contains("'none'") && message.contains(works), "{message}");
    let message = refusal(&run("sparse-all-reduce", "signum"));
    assert!(message.contains("use all-gather, scatter-reduce or server, or"), "{message}");
    let message = refusal(&run("sparse-all-reduce", "chunk-topk:mean=senders"));
    assert!(message.contains("ranks that sent") && message.contains("all-gather"), "{message}");
    let mut rules = run("sparse-all-reduce", "topk");
    rules.policy.rules = vec!["t0.* -> none".parse().unwrap()];
    rules.setup().validate().unwrap();
    rules.policy.rules = vec!["t0.* -> int8".parse().unwrap()];
    assert!(refusal(&rules).contains("'int8'"));
}

#[test]
fn changes_need_every_rank_at_every_step() {
    let mut run = run("all-gather", "topk:ef=ef21");
    run.setup().validate().unwrap();
    run.participation = Participation::equal(3).with_participants(2, 0.0, 1);
    let message = refusal(&run);
    for part in ["topk:ef=ef21", "at every step", "full participation", "ef=on"] {
        assert!(message.contains(part), "{message}");
    }
    run.participation = Participation::weighted(vec![1.0, 2.0, 1.0]);
    assert!(refusal(&run).contains("equal weights"));
    run.participation = Participation::equal(3);
    for name in ["server:backup=1", "server:mode=async", "server:stale=2"] {
        run.exchange = name.parse().unwrap();
        assert!(refusal(&run).contains("backup or asynchronous"), "{name}");
    }
    // Sums of 16-bit numbers are rounded on their way, and nobody keeps the difference.
    let message = refusal(&self::run("all-reduce", "fp16:ef=ef21"));
    assert!(message.contains("16-bit") && message.contains("all-gather"), "{message}");
    let message = refusal(&self::run("all-reduce", "powersgd:momentum=0.9"));
    assert!(message.contains("do not add with this memory"), "{message}");
    // Estimates of the sums of ten steps are not those of one.
    let mut rounds = self::run("all-gather", "topk:ef=ef21,every=10");
    rounds.policy.push.later = vec![(20, "topk:ef=ef21".parse().unwrap())];
    assert!(refusal(&rounds).contains("cannot follow"));
}

#[test]
fn votes_and_residuals_that_lead_nowhere_are_refused() {
    let mut residuals = run("all-gather", "topk");
    residuals.policy.push.later = vec![(2, "3lc".parse().unwrap())];
    let message = refusal(&residuals);
    assert!(message.contains("'3lc' cannot follow 'topk'"), "{message}");
    let mut votes = run("server", "none");
    votes.policy.pull = Some("signsgd".parse().unwrap());
    let message = refusal(&votes);
    assert!(message.contains("votes of 'signsgd'") && message.contains("efsignsgd"), "{message}");
    let mut ruled = run("server", "topk");
    ruled.policy.rules = vec!["t0.* -> signum".parse().unwrap()];
    assert!(refusal(&ruled).contains("votes of 'signum'"));
    ruled.policy.pull = Some("none".parse().unwrap());
    assert!(ruled.setup().validate().is_ok());
    let mut late = run("all-reduce", "none");
    late.policy.push.later = vec![(2, "topk".parse().unwrap())];
    assert!(refusal(&late).contains("messages of 'topk' do not add"));
}

#[test]
fn impossible_numbers_are_refused_with_the_possible_ones() {
    let message = refusal(&run("server:servers=3", "3lc"));
    assert!(message.contains("3 servers") && message.contains("at most servers=2"), "{message}");
    let message = refusal(&run("server:backup=3", "3lc"));
    assert!(message.contains("at most backup=2"), "{message}");
    let message = refusal(&Run::of("server", 0, "3lc", &[10]));
    assert!(message.contains("no workers"), "{message}");
}

#[test]
fn tensors_need_names_and_parameters_of_their_own() {
    let mut twins = run("all-gather", "none");
    twins.tensors[1] = Tensor::new("t0.weight", &[20]);
    assert!(refusal(&twins).contains("'t0.weight'"));
    let mut short = run("all-gather", "none");
    short.initial[1].pop();
    assert!(refusal(&short).contains("'t1.weight' has 20 elements, but its buffer has 19"));
}

/// The errors of the ranks of a run, of which rank 2 was started with another run.
fn handshake(one: &Run, other: &Run) -> Vec<String> {
    handshake_of(&one.setup(), &other.setup())
}

fn handshake_of(one: &GroupConfig<'_>, other: &GroupConfig<'_>) -> Vec<String> {
    connected(one.exchange.ranks(one.workers()), |rank, transport| {
        let setup = if rank == 2 { other } else { one };
        let made = Role::join(Box::new(transport), setup, || Box::new(Sgd));
        made.expect_err("the setups differ").to_string()
    })
}

#[test]
fn a_handshake_names_the_first_difference_and_both_ranks() {
    for name in ["all-gather", "server"] {
        let one = run(name, "topk:ratio=0.1");
        let other = run(name, "topk:ratio=0.2");
        for message in handshake(&one, &other) {
            for part in ["rank 2 was", "topk:ratio=0.2", "rank 0 with", "topk:ratio=0.1"] {
                assert!(message.contains(part), "{message}");
            }
        }
        let mut reshaped = run(name, "topk:ratio=0.1");
        reshaped.tensors[1] = Tensor::new("t1.weight", &[4, 5]);
        for message in handshake(&one, &reshaped) {
            assert!(message.contains("tensor 't1.weight' [4, 5]"), "{message}");
        }
        // One that follows schedules and rules, and one that does not.
        let mut pulls = run(name, "topk:ratio=0.1");
        pulls.policy.pull = Some("topk:ratio=0.1".parse().unwrap());
        for message in handshake(&one, &pulls) {
            assert!(message.contains("pull compressor"), "{message}");
        }
        let mut moved = run(name, "topk:ratio=0.1");
        moved.initial[0][0] += 1.0;
        for message in handshake(&one, &moved) {
            assert!(message.contains("initial parameters"), "{message}");
        }
    }
}

/// What another rank was started with.
type Change = fn(&mut Run);

#[test]
fn a_handshake_compares_every_fact() {
    let one = run("all-gather", "topk:ratio=0.1");
    let shares = |weights: &str| {
        format!(
            "shares Participation {{ weights: [{weights}], participants: 3, dropout: 0.0, seed: \
             0 }}"
        )
    };
    let facts: [(Change, &str, &str); 8] = [
        (
            |run| run.exchange = exchange("scatter-reduce"),
            "exchange scatter-reduce",
            "exchange all-gather",
        ),
        (
            |run| run.participation = Participation::weighted(vec![1.0, 2.0, 1.0]),
            &shares("1.0, 2.0, 1.0"),
            &shares("1.0, 1.0, 1.0"),
        ),
        (
            |run| run.policy.push.later = vec![(4, "topk:ratio=0.2".parse().unwrap())],
            r#"later ["topk:ratio=0.2 from 4"]"#,
            "later []",
        ),
        (
            |run| run.policy.rules = vec!["t0.* -> none".parse().unwrap()],
            r#"rules ["t0.* -> none"]"#,
            "rules []",
        ),
        (|run| run.policy.raw_vectors = true, "raw vectors true", "raw vectors false"),
        (|run| run.policy.raw_below = 6, "raw below 6", "raw below 5"),
        (|run| run.policy.raw_names = vec!["t1".to_owned()], r#"raw names ["t1"]"#, "raw names []"),
        (
            |run| run.tensors[1] = Tensor::new("t2.weight", &[20]),
            "tensor 't2.weight' [20]",
            "tensor 't1.weight' [20]",
        ),
    ];
    let names = |messages: Vec<String>, theirs: &str, ours: &str| {
        let both = format!("rank 2 was started with {theirs}, rank 0 with {ours};");
        messages.iter().for_each(|message| assert!(message.contains(&both), "{message}"));
    };
    for (change, theirs, ours) in facts {
        let mut other = one.clone();
        change(&mut other);
        names(handshake(&one, &other), theirs, ours);
    }
    let reseeded = GroupConfig { seed: 8, ..one.setup() };
    names(handshake_of(&one.setup(), &reseeded), "seed 8", "seed 7");
}

#[test]
fn a_transport_of_another_size_is_refused() {
    let run = run("all-gather", "none");
    let mut transports = in_process::connect(2, in_process::Options::default());
    let transport = Box::new(transports.remove(0));
    let made = ReplicatedOptimizer::new(transport, &run.setup(), Box::new(Sgd));
    let message = made.err().unwrap().to_string();
    assert!(message.contains("needs 3 ranks, but the transport connects 2"), "{message}");
}

#[test]
fn broadcast_and_barrier_reach_every_rank() {
    connected(4, |rank, mut transport| {
        let mut message = vec![rank as u8; 3];
        transport.broadcast(2, Operation::whole(Phase::Broadcast, 5), &mut message).unwrap();
        assert_eq!(message, [2; 3]);
        transport.barrier().unwrap();
    });
}

#[test]
fn ranks_out_of_step_are_told_what_came_instead() {
    let run = run("all-gather", "none");
    let messages = run.each(|rank, exchange| {
        let gradients = run.initial.clone();
        let step = if rank == 1 { 4 } else { 3 };
        exchange
            .step(StepInput::new(step, 1.0, &gradients), &mut run.initial.clone())
            .unwrap_err()
            .to_string()
    });
    assert!(
        messages.iter().any(|message| message.contains("same number of steps")),
        "{messages:?}"
    );
}

#[test]
fn compressors_take_over_in_order_and_from_their_like_only() {
    let refused = |later: &[(u64, &str)]| {
        let mut run = run("all-gather", "topk");
        run.policy.push.later =
            later.iter().map(|(from, spec)| (*from, spec.parse().unwrap())).collect();
        run.setup().validate().map_err(|error| error.to_string())
    };
    assert_eq!(refused(&[(2, "topk:ratio=0.5"), (4, "topk")]), Ok(()));
    assert!(refused(&[(4, "topk"), (2, "topk")]).unwrap_err().contains("in the order"));
    assert!(refused(&[(0, "topk")]).unwrap_err().contains("in the order"));
    assert!(refused(&[(2, "3lc")]).unwrap_err().contains("only the same compressor"));
    assert!(refused(&[(2, "topk:ef=off")]).unwrap_err().contains("only the same compressor"));
}

#[test]
fn local_steps_of_single_tensors_are_refused() {
    let mut run = run("all-gather", "3lc");
    run.policy.rules = vec!["*.weight -> topk:ratio=0.5,every=7".parse().unwrap()];
    let error = refusal(&run);
    for part in ["'*.weight -> topk:ratio=0.5,every=7'", "remove every="] {
        assert!(error.contains(part), "{error}");
    }
}

//! Updates between random states arrive.

mod common;

use common::*;
use gradwire_delta::{Absent, DiffOptions, ElementType, Receiver, Sender, Tensor, fold};
use proptest::prelude::*;

fn random_tensor(name: &str, random: &mut Random) -> (Tensor, Vec<u8>) {
    let element = ElementType::ALL[random.below(15) as usize];
    let dimensions = random.below(4);
    let shape: Vec<u64> = (0..dimensions).map(|_| random.below(3).pow(2) * 9 + 1).collect();
    let tensor = tensor(name, element, &shape);
    let few = random.below(2) == 0;
    let byte = |random: &mut Random| if few { 0x3f } else { random.next() as u8 };
    let bytes = (0..tensor.byte_len()).map(|_| byte(random)).collect();
    (tensor, bytes)
}

fn random_model(random: &mut Random) -> Model {
    let names = ["a", "b", "b.c", "x\u{1b}", "zz", "ö"];
    let tensors = names.iter().filter_map(|name| {
        let tensor = random_tensor(name, random);
        (random.below(4) > 0).then_some(tensor)
    });
    tensors.collect()
}

/// Most tensors change a few elements; some come, go, or become others.
fn random_step(old: &Model, random: &mut Random) -> Model {
    let other = random_model(random);
    let mut new = step(old, random.next(), [1, 2, 20, 1000][random.below(4) as usize]);
    new.retain(|_| random.below(8) > 0);
    for tensor in other {
        if random.below(6) == 0 {
            new.retain(|(old, _)| old.name() != tensor.0.name());
            new.push(tensor);
        }
    }
    new.sort_by(|a, b| a.0.name().cmp(b.0.name()));
    new
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_state_leads_to_any_other(seed: u64, portable: bool, threads in 1usize..4) {
        let mut random = Random(seed);
        let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
        let mut models = vec![random_model(&mut random)];
        let mut sender = sender(&models[0], options, threads);
        let mut receiver = Receiver::new(mirror(&models[0]), threads).unwrap();
        let mut links = Vec::new();
        for version in 1..4 {
            let new = random_step(&models[version - 1], &mut random);
            links.push(diff(&mut sender, &new));
            let link = &links[version - 1];
            prop_assert_eq!(link, &diff_alone(&models[version - 1], &new, options, version as u64));
            sender.commit().unwrap();
            prop_assert_eq!(apply(&mut receiver, link).unwrap(), sender.state());
            prop_assert!(has(&receiver, &new));
            let again = receiver.stage([&link[..]]).unwrap();
            prop_assert!(again.is_applied() || new == models[version - 1]);
            models.push(new);
        }
        let mut folded = Vec::new();
        let chain = links.iter().map(|link| &link[..]);
        let base = mirror(&models[0]);
        fold(&base, chain, &options, None, threads, &mut collect(&mut folded)).unwrap();
        let mut receiver = Receiver::new(mirror(&models[0]), 1).unwrap();
        prop_assert_eq!(apply(&mut receiver, &folded).unwrap(), sender.state());
        prop_assert!(has(&receiver, &models[3]));
    }

    #[test]
    fn random_bytes_are_refused(bytes: Vec<u8>, magic: bool) {
        let mut stream = if magic { b"\x89GWD\r\n\x1a\n".to_vec() } else { Vec::new() };
        stream.extend(bytes);
        prop_assert!(receiver(&model(1)).stage([&stream[..]]).is_err());
    }
}

/// The link that a new sender of this version writes with one thread.
fn diff_alone(old: &Model, new: &Model, options: DiffOptions, version: u64) -> Vec<u8> {
    let receiver = Receiver::new(mirror(old), 1).unwrap().with_version(RUN, version - 1);
    diff(&mut Sender::resume(receiver, options, 1), new)
}

use std::hint::black_box;
use std::time::Instant;
use gradwire_delta::safetensors::Checkpoint;
use gradwire_delta::*;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let open = |p: &str| Mirror::copy_of(&Checkpoint::open(std::path::Path::new(p)).unwrap()).unwrap();
    let (old, new) = (open(&args[1]), open(&args[2]));
    let rounds: usize = args[3].parse().unwrap();
    let portable = args.get(4).is_some_and(|x| x == "portable");
    let only = args.get(5).cloned().unwrap_or_default();
    let raw: usize = new.tensors().iter().map(|t| t.byte_len()).sum();
    let mut workers = Workers::new(1);
    let mut receiver = Receiver::new(old.clone(), 1).unwrap();
    let before = receiver.state();
    let after = Receiver::new(new.clone(), 1).unwrap().state();
    let mut copy = new.clone();
    let write = |base: &Mirror, state: &State, new: &Mirror, workers: &mut Workers, out: &mut Vec<u8>| {
        out.clear();
        let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
        let ends = Ends { base: *state, target: Target { run: RunId([0; 16]), version: 1 - state.version.min(1) } };
        write_delta(base, new, &ends, &options, workers, &mut |f| { out.extend_from_slice(f); Ok(()) }).unwrap();
    };
    let (mut there, mut back) = (Vec::new(), Vec::new());
    write(&new, &after, &old, &mut workers, &mut back);
    let mut update = Update::default();
    let mut best = [f64::INFINITY; 4];
    let time = |f: &mut dyn FnMut()| { let s = Instant::now(); f(); s.elapsed().as_secs_f64() };
    for _ in 0..rounds {
        let mut t = [0.0; 4];
        t[0] = time(&mut || write(&old, &before, &new, &mut workers, &mut there));
        if only != "encode" {
        t[1] = time(&mut || receiver.stage_into([&there[..]], &mut update).unwrap());
        t[2] = time(&mut || { receiver.commit(&mut update).unwrap(); });
        t[3] = time(&mut || {
            let slices = Tensors::slices_mut(&mut copy).unwrap();
            for (slice, (_, bytes)) in slices.into_iter().zip(new.iter()) { slice.copy_from_slice(black_box(bytes)); }
            black_box(&copy);
        });
        receiver.stage_into([&back[..]], &mut update).unwrap();
        receiver.commit(&mut update).unwrap();
        }
        for i in 0..4 { best[i] = best[i].min(t[i]); }
    }
    let g = best.map(|s| raw as f64 / s / 1e9);
    println!("{} bytes {} encode {:.2} ({:.0}%) stage {:.2} commit {:.1} both {:.2} copy {:.2}", args[1].rsplit('/').nth(1).unwrap_or(""),
        there.len(), g[0], 100.0 * g[0] / g[3], g[1], g[2], 1.0 / (1.0 / g[1] + 1.0 / g[2]), g[3]);
}

//! Verbs that train: `compare`, `train`, `reproduce`.

mod support;

use serde_json::Value;
use support::{Bench, TINY, rows};

#[test]
fn compare_writes_a_report_and_rows() {
    let bench = Bench::with_images();
    let line = format!(
        "compare {TINY} --steps 6 --compressor none --compressor 3lc --seed 1 --seed 2 --out out"
    );
    let rows = rows(&bench, &line);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        for key in
            ["compressor", "quality", "bits_per_parameter", "ratio", "bytes_up", "bytes_down"]
        {
            assert!(!row[key].is_null(), "{key} is missing");
        }
        assert_eq!(row["steps"], 6);
    }
    assert_eq!((&rows[0]["compressor"], &rows[0]["seed"]), (&"none".into(), &1.into()));
    assert_eq!((&rows[3]["compressor"], &rows[3]["seed"]), (&"3lc".into(), &2.into()));
    // 32 bits a parameter, and headers; 3LC at most 1.6 bits, and headers and raw biases.
    let bits = |row: &Value| row["bits_per_parameter"].as_f64().unwrap();
    assert!((32.0..32.1).contains(&bits(&rows[0])), "{}", bits(&rows[0]));
    assert!(bits(&rows[1]) < 1.8);
    let html = bench.read_text("out/report.html");
    assert!(html.contains("<svg") && html.contains("gradwire compare --model mlp"));
    assert_eq!((html.matches("<script>").count(), html.matches("<link").count()), (1, 0));
    // The experiment written beside the report is the same experiment.
    let again = self::rows(&bench, "compare --experiment out/experiment.toml --out again");
    let digests = |rows: &[Value]| rows.iter().map(|r| r["digest"].clone()).collect::<Vec<_>>();
    assert_eq!(digests(&rows), digests(&again));
}

#[test]
fn by_default_compressors_have_exchanges_of_their_own_and_none_has_no_rules() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --steps 4 --compressor none --compressor 3lc --out out");
    let mut command = bench.command(&line);
    let output = command.args(["--rule", ">=1000 -> powersgd"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("Times the speed of an uncompressed all-reduce"), "{printed}");
    let runs: Vec<Value> = bench
        .read_text("out/runs.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let set_up = |run: &Value| (run["exchange"].clone(), run["rules"].as_array().unwrap().len());
    assert_eq!(set_up(&runs[0]), ("all-reduce".into(), 0));
    assert_eq!(set_up(&runs[1]), ("all-gather".into(), 1));
    let html = bench.read_text("out/report.html");
    assert!(html.contains("all-reduce: none; all-gather: 3lc"));
    assert!(html.contains("&gt;=1000 -&gt; powersgd (not for none)"));
    assert!(bench.read_text("out/experiment.toml").contains("exchange = \"auto\""));
    // With a server the baseline is its server.
    let printed = bench.ok(&format!("{line} --exchange server"));
    assert!(printed.contains("speed of an uncompressed parameter server"), "{printed}");
    let refused = bench.refused("reproduce all-methods --exchange auto");
    assert!(refused.contains("all-methods"), "{refused}");
}

#[test]
fn runs_that_diverged_are_records_and_count_in_later_comparisons() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --steps 50 --compressor none");
    let bad = format!("{line} --lr 1e9 --seed 1 --out bad");
    assert_eq!(bench.run(&bad).status.code(), Some(1));
    let record = bench.read_text("bad/runs.jsonl");
    let parsed: Value = serde_json::from_str(&record).unwrap();
    assert!(parsed["diverged"].is_string() && parsed["seed"] == 1, "{record}");
    // It is not repeated, and still fails.
    let again = bench.run(&format!("{bad} --resume"));
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.code() == Some(1) && !said.contains(": 50 steps"), "{said}");
    assert!(said.contains("the run diverged; lower the learning rate"), "{said}");
    assert_eq!(bench.read_text("bad/runs.jsonl"), record);
    // As if 3lc had diverged with this seed at the usual learning rate.
    let both = format!("{line} --compressor 3lc --lr 0.01 --out out");
    bench.ok(&both);
    let mut failed = parsed;
    for (key, value) in
        [("compressor", "3lc"), ("exchange", "all-gather"), ("learning_rate", "0.01")]
    {
        failed[key] = value.into();
    }
    let kept = format!("{}{failed}\n", bench.read_text("out/runs.jsonl"));
    bench.write("out/runs.jsonl", kept.as_bytes());
    let printed = bench.ok(&format!("{both} --resume"));
    assert!(printed.contains("1 of 2 diverged"), "{printed}");
    assert!(printed.contains("lose quality: 3lc"), "{printed}");
    assert_eq!(bench.read_text("out/runs.jsonl"), kept);
    let json: Value = serde_json::from_str(&bench.ok(&format!("{both} --resume --json"))).unwrap();
    assert_eq!(json["compressors"][1]["diverged"], 1);
    assert_eq!(json["verdict"]["compressors"][0]["judgement"], "loses");
}

#[test]
fn a_comparison_is_compared_with_an_earlier_one() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --steps 4 --compressor none --compressor 3lc");
    bench.ok(&format!("{line} --out then"));
    let printed = bench.ok(&format!("{line} --out now --baseline then"));
    assert!(
        printed.contains("Since the runs in then:") && printed.contains("no change"),
        "{printed}"
    );
    // A tenth of the bytes then.
    let fewer = |line: &str| {
        let mut run: Value = serde_json::from_str(line).unwrap();
        for key in ["bytes_up", "bytes_down"] {
            run[key] = (run[key].as_f64().unwrap() / 10.0).into();
        }
        format!("{run}\n")
    };
    let runs: String = bench.read_text("then/runs.jsonl").lines().map(fewer).collect();
    bench.write("then/runs.jsonl", runs.as_bytes());
    let output = bench.run(&format!("{line} --out now --baseline then --json"));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &json["changes"][1]["change"]),
        (Some(1), &"regressed".into())
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("regressed since the earlier runs: none, 3lc"), "{said}");
    assert!(bench.refused(&format!("{line} --baseline images")).contains("has no runs"));
}

#[test]
fn overlap_changes_no_bit_and_says_what_it_hid() {
    let bench = Bench::with_images();
    let line = format!("train {TINY} --steps 4 --exchange all-gather");
    let (plain, early) = (bench.ok(&line), bench.ok(&format!("{line} --overlap on --out run")));
    let digest = |printed: &str| printed.lines().last().unwrap().to_owned();
    assert!(digest(&plain).contains("Digest") && digest(&plain) == digest(&early));
    assert!(!plain.contains("hidden"), "{plain}");
    assert!(early.contains("hidden") && early.contains(" % of communication"), "{early}");
    let run: Value = serde_json::from_slice(&bench.read("run")).unwrap();
    assert_eq!(run["overlap"], true);
    assert!(run["trace"][0]["background"].as_f64().unwrap() > 0.0);
    let refused = bench.refused(&format!("{line} --overlap on --clip 1"));
    assert!(refused.contains("give --clip off, or leave overlap off"), "{refused}");
}

#[test]
fn a_comparison_goes_on_with_runs_that_are_done_or_sets_them_aside() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --steps 4 --out out --compressor none");
    bench.ok(&line);
    let first = bench.read_text("out/runs.jsonl");
    bench.ok(&format!("{line} --compressor 3lc --resume"));
    let both = bench.read_text("out/runs.jsonl");
    assert!(both.starts_with(&first) && both.lines().count() == 2);
    assert!(!bench.path("out/runs.jsonl.1").exists());
    let error = bench.refused(&format!("{line} --lr 0.5 --resume"));
    assert!(error.contains("give another output folder"), "{error}");
    // A run without the diagnoses that are asked for is repeated, once; the other one stays.
    let diagnosed = || {
        bench.ok(&format!("{line} --diagnose --resume"));
        bench.read_text("out/runs.jsonl")
    };
    let repeated = diagnosed();
    assert!(bench.read_text("out/report.html").contains("Layer by layer"));
    let [none, other] = repeated.lines().collect::<Vec<_>>()[..] else { panic!("{repeated}") };
    assert!(both.lines().nth(1) == Some(other));
    let digest = |line: &str| serde_json::from_str::<Value>(line).unwrap()["digest"].clone();
    assert!(none.contains("\"diagnoses\"") && digest(none) == digest(&first));
    assert!(diagnosed() == repeated, "it was repeated again");
    let both = repeated;
    let noted = noted(&bench, &line);
    assert!(noted.contains("Earlier runs were moved to out/runs.jsonl.1."), "{noted}");
    assert_eq!(bench.read_text("out/runs.jsonl.1"), both);
    let alone = bench.read_text("out/runs.jsonl");
    assert_eq!(alone.lines().count(), 1);
    // Another name, so that both stay.
    bench.ok(&line);
    assert_eq!(bench.read_text("out/runs.jsonl.1"), both);
    assert_eq!(bench.read_text("out/runs.jsonl.2"), alone);
}

/// What a command that succeeds prints to standard error.
fn noted(bench: &Bench, line: &str) -> String {
    let output = bench.run(line);
    assert!(output.status.success(), "gradwire {line}");
    String::from_utf8(output.stderr).unwrap()
}

/// A command whose arguments are not UTF-8 is shown all the same.
#[cfg(target_os = "linux")]
#[test]
fn arguments_may_be_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::with_images();
    let mut command = bench.command(&format!("compare {TINY} --steps 2 --compressor none --out"));
    let folder = std::ffi::OsStr::from_bytes(b"o\xffut");
    let output = command.arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(bench.path("").join(folder).join("report.html")).unwrap();
    assert!(page.contains("--compressor none --out 'o\u{fffd}ut'"));
}

#[test]
fn a_report_has_the_earlier_runs_of_its_folder() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --out out --steps");
    bench.ok(&format!("{line} 4 --compressor none --compressor 3lc"));
    let resumed = format!("{line} 4 --compressor none --seed 1 --resume");
    let shown: Vec<_> = rows(&bench, &resumed)
        .iter()
        .map(|row| (row["compressor"].to_string(), row["seed"].to_string()))
        .collect();
    let row = |compressor: &str, seed: &str| (format!("\"{compressor}\""), seed.to_owned());
    assert_eq!(shown, [row("none", "0"), row("none", "1"), row("3lc", "0")]);
    let written = bench.read_text("out/experiment.toml");
    assert!(written.contains("seeds = [0, 1]") && written.contains("\"3lc\""), "{written}");
    // Runs of other lengths cannot be compared.
    let noted = noted(&bench, &format!("{line} 2 --compressor none --resume"));
    let others =
        "Left out of the report: none with seed 0 and 4 steps, none with seed 1 and 4 steps, 3lc";
    assert!(noted.contains(others), "{noted}");
}

#[test]
fn a_comparison_that_cannot_work_leaves_earlier_results() {
    let bench = Bench::with_images();
    let line = format!("compare {TINY} --steps 2 --out out --compressor none --compressor topk");
    bench.ok(&line);
    let before = bench.read_text("out/runs.jsonl");
    for (wrong, says) in [
        ("--exchange all-reduce", "all-gather"),
        ("--exchange server:servers=99", "servers"),
        ("--rule nosuch->int8", "nosuch"),
        ("--outer nesterov", "give --send updates"),
        ("--svrg 1 --exchange server", "server"),
    ] {
        let error = bench.refused(&format!("{line} {wrong}"));
        assert!(error.contains(says), "{wrong}: {error}");
        assert_eq!(bench.read_text("out/runs.jsonl"), before);
        assert!(!bench.path("out/runs.jsonl.1").exists());
    }
    // Another process writes there.
    let folder = std::fs::File::open(bench.path("out")).unwrap();
    folder.lock().unwrap();
    let error = bench.refused(&line);
    assert!(error.contains("another process writes results to 'out'"), "{error}");
    assert_eq!(bench.read_text("out/runs.jsonl"), before);
}

#[test]
fn an_unfinished_run_is_not_left_behind_by_others() {
    let bench = Bench::with_images();
    std::fs::create_dir(bench.path("out")).unwrap();
    bench.write("out/unfinished-0123.state", b"of another run");
    let line = format!("compare {TINY} --steps 2 --out out --compressor none");
    let error = bench.refused(&format!("{line} --resume"));
    assert!(error.contains("the unfinished run in 'out' has other settings"), "{error}");
    let noted = noted(&bench, &line);
    assert!(
        noted.contains("Removed the checkpoint of a stopped run: out/unfinished-0123.state."),
        "{noted}"
    );
    assert!(!bench.path("out/unfinished-0123.state").exists());
}

#[test]
fn results_that_cannot_be_written_are_refused_before_training() {
    let bench = Bench::with_images();
    // It would take hours.
    let output = bench.run(&format!("train {TINY} --steps 100000000 --out images"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("it is a folder"), "{error}");
}

#[test]
fn compare_needs_no_data() {
    let bench = Bench::new();
    let rows = rows(&bench, "compare --model mlp --steps 2 --workers 1 --compressor none");
    assert_eq!(rows[0]["data"], "digits");
    assert!(bench.path("gradwire-report/report.html").exists());
}

#[test]
fn language_models_are_measured_in_perplexity() {
    let bench = Bench::new();
    bench.text("letters", "to be or not to be, that is the question\n", 30);
    let line = "compare --data letters --model charlstm:hidden=8 --workers 2 --batch 2 --steps 6 \
                --compressor none --compressor 3lc";
    let printed = bench.ok(line);
    assert!(printed.contains("perplexity") && !printed.contains("accuracy"), "{printed}");
    assert!(printed.contains("10 Mbit/s, modelled"), "{printed}");
    for row in rows(&bench, &format!("{line} --resume")) {
        assert_eq!(row["metric"], "perplexity");
        // Fifteen different characters.
        let quality = row["quality"].as_f64().unwrap();
        assert!((3.0..17.0).contains(&quality), "{quality}");
    }
    let written = bench.read_text("gradwire-report/experiment.toml");
    for setting in ["clip = 5", "optimizer = \"sgd\"", "factor=0.8"] {
        assert!(written.contains(setting), "{written}");
    }
    for (data, model) in [("letters", "lenet5"), ("digits", "charlstm")] {
        let error = bench.refused(&format!("train --data {data} --model {model} --steps 2"));
        assert!(error.contains(data) && error.contains(model), "{error}");
    }
}

#[test]
fn exchanges_are_scaled_and_kept() {
    let bench = Bench::with_images();
    let line =
        "reproduce exchange-scaling --data images --model mlp --steps 2 --workers 3 --out out";
    let printed = bench.ok(line);
    for exchange in ["all-reduce", "all-gather", "scatter-reduce", "sparse-all-reduce"] {
        assert!(printed.contains(exchange), "{printed}");
    }
    let page = bench.read_text("out/README.md");
    assert!(page.contains("| all-gather | 3lc | 3 |") && page.contains("time-1-gbit-s.svg"));
    let runs = bench.read("out/runs.jsonl");
    bench.ok(line);
    assert!(bench.read("out/runs.jsonl") == runs, "the runs were made again");
    // Another number of workers joins them.
    bench.ok(&line.replace("--workers 3", "--workers 2"));
    let page = bench.read_text("out/README.md");
    assert!(page.contains("| all-gather | 3lc | 2 |") && page.contains("| all-gather | 3lc | 3 |"));
    bench.write("seeds.toml", b"seeds = [0, 1]\n");
    let error = bench.refused("reproduce exchange-scaling --experiment seeds.toml");
    assert!(error.contains("write 'seeds = [0]'"), "{error}");
    let error = bench.refused("reproduce exchange-scaling --row lenet");
    assert!(error.contains("no rows"), "{error}");
}

#[test]
fn the_experiment_that_is_written_repeats_the_epochs_of_all_parts() {
    let bench = Bench::with_images();
    let again = bench.path("out/experiment.toml");
    let shapes = |folder: &str, line: &str| {
        bench.ok(&format!("reproduce exchange-scaling {line} --out {folder}"));
        let runs = bench.read_text(&format!("{folder}/runs.jsonl"));
        let shape = |line: &str| {
            let run: Value = serde_json::from_str(line).unwrap();
            (run["workers"].as_u64().unwrap(), run["steps"].as_u64().unwrap())
        };
        runs.lines().map(shape).collect::<Vec<_>>()
    };
    let first = shapes("out", "--data images --model mlp:16 --batch 4 --epochs 0.5");
    // 96 images: 12 steps an epoch with two workers, and 1.5 with sixteen.
    assert!(first.contains(&(2, 6)) && first.contains(&(16, 1)), "{first:?}");
    assert_eq!(shapes("again", &format!("--experiment {}", again.display())), first);
}

#[test]
fn steps_over_links_stand_beside_the_model() {
    let bench = Bench::with_images();
    let error = bench.refused("reproduce 3lc-links --out links");
    assert!(error.contains("benchmarks/mpi-links links"), "{error}");
    bench
        .ok(&format!("compare {TINY} --steps 4 --compressor none --compressor 3lc --out links/10"));
    let printed = bench.ok("reproduce 3lc-links --out links");
    assert!(printed.contains("10 Mbit/s") && printed.contains("15.9×"), "{printed}");
    // No link slowed these down: they took less than the model says.
    let page = bench.read_text("links/README.md");
    assert!(page.contains("off by at most +"), "{page}");
    let error = bench.refused("reproduce 3lc-links --out links --steps 5");
    assert!(error.contains("trains nothing"), "{error}");
}

#[test]
fn a_reproduction_goes_on_where_it_was_stopped() {
    let bench = Bench::with_images();
    let line = format!("reproduce 3lc-table2 {TINY} --steps 4 --out out");
    let printed = bench.ok(&line);
    assert!(printed.contains("0.812"), "{printed}");
    let runs = bench.read("out/runs.jsonl");
    let lines: Vec<&str> = std::str::from_utf8(&runs).unwrap().lines().collect();
    assert_eq!(lines.len(), 6);
    // Keep two runs; the other four are made again, and these two are not.
    bench.write("out/runs.jsonl", (lines[..2].join("\n") + "\n").as_bytes());
    bench.ok(&line);
    let remade = bench.read("out/runs.jsonl");
    let again: Vec<&str> = std::str::from_utf8(&remade).unwrap().lines().collect();
    assert_eq!(again.len(), 6);
    assert_eq!(again[..2], lines[..2]);
    // Where the run of one compressor is already there, nothing is run, and the page shows all.
    let page = bench.read_text("out/README.md");
    bench.ok(&format!("{line} --compressor 3lc"));
    assert!(bench.read("out/runs.jsonl") == remade, "runs were made again or lost");
    let table = |page: &str| page.split("## How to repeat the runs").next().unwrap().to_owned();
    assert_eq!(table(&bench.read_text("out/README.md")), table(&page));
    // The page has the runs of all seeds, also of the compressor that was asked for.
    bench.ok(&format!("{line} --compressor 3lc --seed 5"));
    let page = bench.read_text("out/README.md");
    assert!(page.contains("1 to 2 per design"), "{page}");
    // Elsewhere it is the only run.
    bench.ok(&format!("reproduce 3lc-table2 {TINY} --steps 4 --compressor 3lc --out one"));
    let alone = bench.read_text("one/runs.jsonl");
    assert_eq!(alone.lines().count(), 1);
    assert!(
        alone.contains("\"compressor\":\"3lc\"")
            && bench.read_text("one/experiment.toml").contains("compressors = [\"3lc\"]")
    );
    // In the study's own folder other lengths would replace the page.
    let short = format!("reproduce 3lc-table2 {TINY} --compressor 3lc");
    bench.ok(&format!("{short} --steps 4"));
    let error = bench.refused(&format!("{short} --steps 2"));
    assert!(error.contains("have 4 steps, but these runs would have 2"), "{error}");
    bench.ok(&format!("{short} --steps 2 --out results/3lc-table2"));
    // Another set-up does not mix with these results.
    let error = bench.refused(&line.replace("--batch 8", "--batch 4"));
    assert!(error.contains("batch 8"), "{error}");
    assert!(bench.ok("reproduce").contains("3lc-table1"));
    bench.refuses(&[
        ("reproduce grace-fig6 --row ncf --exchange server", "sets --exchange itself"),
        ("reproduce grace-fig8 --row ncf --workers 4", "sets --workers itself"),
        ("reproduce adacomp-fig7 --batch 32", "sets --batch itself"),
        ("reproduce transformer-frontier --outer-lr 0.5", "sets --outer-lr itself"),
        ("reproduce transformer-frontier --rule vectors->none", "sets --rule itself"),
        ("reproduce transformer-frontier --compressor none", "sets --compressor itself"),
        ("reproduce transformer-frontier --fraction 0.5", "sets --fraction itself"),
        ("reproduce 4lc-table1", "3lc-table1"),
        ("reproduce 3lc-table2 --compressor topk", "3lc-table2 does not compare 'topk'"),
        ("reproduce 3lc-links --compressor 3lc", "trains nothing"),
    ]);
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_written() {
    let bench = Bench::with_images();
    bench.write("bad.toml", b"stepz = 3\n");
    bench.refuses(&[
        ("compare --data nowhere/at/all", "nowhere/at/all"),
        ("compare --data svhn", "known data sets"),
        ("compare --compressor 4lc", "known ones: none"),
        ("compare --compressor 3lc --compressor 3lc", "given twice"),
        ("compare --model vgg17", "lenet5"),
        ("compare --exchange ring", "all-reduce"),
        ("compare --workers 0", "workers"),
        ("compare --steps 5 --epochs 1", "cannot be used with"),
        ("compare --lr fast", "fast"),
        ("compare --experiment bad.toml", "stepz"),
        ("compare --experiment none.toml", "none.toml"),
        ("train --data images --model mlp --steps 2 --exchange server:servers=99", "servers"),
        (
            "train --data images --model mlp --steps 2 --exchange all-reduce --compressor 3lc",
            "all-gather",
        ),
        ("train --data images --model mlp --steps 2 --resume absent.state", "absent.state"),
        ("train --data images --model mlp --steps 2 --outer nesterov", "give --send updates"),
        ("train --data images --model mlp --steps 2 --send updates --outer-lr 0.7", "give --outer"),
        (
            "train --data images --model mlp --steps 2 --send updates --exchange server:mode=async --outer sgd",
            "mean of all workers",
        ),
        ("compare --model gpt:heads=3", "divides the width"),
        ("compare --workers -1", "'-1' for '--workers <N>'"),
        ("train --lr -0.1", "'-0.1' for '--lr <RATE>'"),
        ("train --out x --save ./x", "the checkpoint './x' uses this name"),
        ("train --experiment bad.toml --out bad.toml", "stepz"),
        ("train --data images --model mlp --raw bais", "did you mean 'bias'"),
    ]);
    let default = gradwire_testbed::experiment::Experiment::default().to_toml();
    bench.write("default.toml", default.as_bytes());
    bench.write("several.toml", b"compressors = ['none', 'eden']\nseeds = [3]\n");
    bench.refuses(&[
        (
            "train --experiment several.toml",
            "2 compressors (none, eden); choose one with --compressor",
        ),
        ("train --experiment default.toml", "choose one with --compressor"),
    ]);
}

#[test]
fn train_takes_compressor_and_seed_from_an_experiment_file() {
    let bench = Bench::with_images();
    let file = "data = 'images'\nmodel = 'mlp:4'\nsteps = 2\nbatch = 4\nworkers = 2\n";
    bench.write("file.toml", format!("{file}compressors = ['eden']\nseeds = [7]\n").as_bytes());
    let [file, flags] = ["", "--compressor int8 --seed 1"]
        .map(|flags| rows(&bench, &format!("train --experiment file.toml {flags}")).remove(0));
    assert_eq!((&file["compressor"], &file["seed"]), (&Value::from("eden"), &Value::from(7)));
    assert_eq!((&flags["compressor"], &flags["seed"]), (&Value::from("int8"), &Value::from(1)));
}

#[test]
fn a_run_that_diverges_fails_by_itself() {
    let bench = Bench::with_images();
    let output = bench.run(&format!("train {TINY} --compressor none --steps 50 --lr 1e9"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("learning rate"), "{error}");
}

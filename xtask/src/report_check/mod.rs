//! `cargo xtask report-check`: looks at reports in Chromium, at several widths, in both colour
//! schemes and in print.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use browser::Browser;

/// The checks that run in the page: functions that return what they find. The first only looks, the
/// second uses the tools of tables and charts.
const CHECKS: &str = include_str!("checks.js");
const TOOLS: &str = include_str!("tools.js");

/// The widths of windows in pixels: a phone, a tablet, a laptop.
const WIDTHS: [u32; 3] = [390, 768, 1280];

/// Sizes of paper in inches.
const PAPERS: [(&str, f64, f64); 2] = [("A4", 8.27, 11.69), ("Letter", 8.5, 11.0)];

/// Margins of a page, as its style sets them, in inches.
const MARGINS: f64 = 2.0 * 12.0 / 25.4;

/// Checks these reports, or a small one that it makes.
pub(crate) fn run(reports: &[String]) -> ExitCode {
    let Some(chromium) = browser::program() else {
        eprintln!("Chromium is not installed (apt-get install chromium); skipped");
        return ExitCode::SUCCESS;
    };
    let out = Path::new("target/report-check");
    let reports = match reports {
        [] => match sample(out) {
            Ok(report) => vec![report],
            Err(error) => return failed(&error),
        },
        given => given.iter().map(PathBuf::from).collect(),
    };
    let mut findings = Vec::new();
    for report in &reports {
        match check(&chromium, report, out) {
            Ok(found) => {
                findings.extend(found.into_iter().map(|one| format!("{}: {one}", report.display())))
            }
            Err(error) => return failed(&error),
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} findings; pictures are in {}", findings.len(), out.display());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Makes a small report with several compressors and seeds, one of which has a name that would run
/// a script and request an address.
///
/// # Errors
/// The step that failed.
fn sample(out: &Path) -> Result<PathBuf, String> {
    let folder = out.join("sample");
    let compare = |more: &[&str]| {
        let line = "run --quiet -p gradwire-cli -- compare --model mlp --steps 40 --workers 2 --seed 0 \
                    --seed 1 --compressor none --compressor 3lc --compressor int8 --compressor \
                    topk:ratio=0.05,select=sampled --compressor onebit --diagnose --out";
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(line.split_whitespace()).arg(&folder).args(more);
        let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
        if status.success() { Ok(()) } else { Err("gradwire compare failed".to_owned()) }
    };
    compare(&[])?;
    let runs = folder.join("runs.jsonl");
    let text = fs::read_to_string(&runs).map_err(|error| format!("{}: {error}", runs.display()))?;
    let last = text.lines().last().unwrap_or_default();
    let mut hostile: Value = serde_json::from_str(last).map_err(|error| error.to_string())?;
    hostile["compressor"] = json!("<img src=//x.invalid/y onerror=\"fetch('//x.invalid')\">:a=1");
    fs::write(&runs, format!("{text}{hostile}\n")).map_err(|error| error.to_string())?;
    compare(&["--resume"])?;
    Ok(folder.join("report.html"))
}

/// What is wrong with a report. Writes pictures and pages of print to `out`.
///
/// # Errors
/// If the browser fails.
fn check(chromium: &str, report: &Path, out: &Path) -> Result<Vec<String>, String> {
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let path = report.canonicalize().map_err(|error| format!("{}: {error}", report.display()))?;
    let mut browser = Browser::start(chromium)?;
    let mut findings = Vec::new();
    for script in [true, false] {
        for width in WIDTHS {
            for scheme in ["light", "dark"] {
                browser.script(script)?;
                browser.media("screen", scheme)?;
                browser.window(width, 900)?;
                browser.open(&path)?;
                let place =
                    format!("{width} px, {scheme}{}", if script { "" } else { ", no script" });
                findings.extend(in_page(&mut browser, CHECKS, &place)?);
                if script {
                    browser.picture(&out.join(format!("{width}-{scheme}.png")))?;
                    findings.extend(in_page(&mut browser, TOOLS, &place)?);
                }
            }
        }
    }
    findings.extend(in_print(&mut browser, &path, out)?);
    let requests = browser.requests();
    findings.extend(requests.iter().map(|address| format!("requested {address}")));
    Ok(findings)
}

/// What checks find in the page that is open.
fn in_page(browser: &mut Browser, checks: &str, place: &str) -> Result<Vec<String>, String> {
    let found = browser.evaluate(&format!("({checks})()"))?;
    let found = found.as_array().ok_or("the checks returned no list")?;
    Ok(found.iter().filter_map(Value::as_str).map(|one| format!("{place}: {one}")).collect())
}

/// The same for both sizes of paper; whether text is cut off shows in a window as wide as the
/// printed part.
fn in_print(browser: &mut Browser, path: &Path, out: &Path) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    browser.script(true)?;
    for (name, width, height) in PAPERS {
        browser.media("print", "light")?;
        let printed = ((width - MARGINS) * 96.0).floor() as u32;
        browser.window(printed, 1000)?;
        browser.open(path)?;
        findings.extend(in_page(browser, CHECKS, &format!("{name} in print"))?);
        browser.print((width, height), &out.join(format!("{name}.pdf")))?;
    }
    Ok(findings)
}

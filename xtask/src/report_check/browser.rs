//! Chromium without a window, over a pipe in its DevTools protocol: messages of JSON, each ended by
//! a zero byte.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The program; `None` if none is installed.
pub(super) fn program() -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    names.into_iter().find(is_there).map(str::to_owned)
}

/// A browser with one page.
pub(super) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    requests: Vec<String>,
}

impl Browser {
    /// Starts a browser with an empty page.
    ///
    /// # Errors
    /// If it does not start, or does not answer.
    pub(super) fn start(program: &str) -> Result<Self, String> {
        // The protocol reads from descriptor 3 and writes to descriptor 4.
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --hide-scrollbars \
                      --remote-debugging-pipe 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script, program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let (Some(to), Some(from)) = (to, from) else { return Err("no pipe".to_owned()) };
        let from = BufReader::new(from);
        let mut browser = Self { process, to, from, session: None, sent: 0, requests: Vec::new() };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Network.enable"] {
            browser.call(domain, json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method, and returns its result.
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        self.to.write_all(text.as_bytes()).map_err(|error| format!("{method}: {error}"))?;
        loop {
            let answer = self.read()?;
            if answer["id"] != self.sent {
                continue;
            }
            return match answer.get("error") {
                Some(error) => Err(format!("{method}: {error}")),
                None => Ok(answer["result"].clone()),
            };
        }
    }

    /// The next message; remembers requests other than those of a local file.
    fn read(&mut self) -> Result<Value, String> {
        let mut text = Vec::new();
        self.from.read_until(0, &mut text).map_err(|error| error.to_string())?;
        if text.pop() != Some(0) {
            return Err("the browser ended".to_owned());
        }
        let message: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let address = message["params"]["request"]["url"].as_str().unwrap_or_default();
        if message["method"] == "Network.requestWillBeSent" && !address.starts_with("file:") {
            self.requests.push(address.to_owned());
        }
        Ok(message)
    }

    /// The requests of all pages, other than those of a local file.
    pub(super) fn requests(&self) -> &[String] {
        &self.requests
    }

    /// Whether the next page may run scripts of its own.
    pub(super) fn script(&mut self, on: bool) -> Result<(), String> {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !on})).map(drop)
    }

    /// The medium, `screen` or `print`, and the colour scheme.
    pub(super) fn media(&mut self, medium: &str, scheme: &str) -> Result<(), String> {
        let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let parameters = json!({"media": medium, "features": scheme});
        self.call("Emulation.setEmulatedMedia", parameters).map(drop)
    }

    /// The size of the window, in pixels.
    pub(super) fn window(&mut self, width: u32, height: u32) -> Result<(), String> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).map(drop)
    }

    /// Opens a file, and waits until it is loaded.
    pub(super) fn open(&mut self, path: &Path) -> Result<(), String> {
        let address = format!("file://{}", path.display());
        self.call("Page.navigate", json!({"url": address}))?;
        while self.read()?["method"] != "Page.loadEventFired" {}
        Ok(())
    }

    /// The value of an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters)?;
        match answer.get("exceptionDetails") {
            Some(error) => Err(format!("the checks failed: {error}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Writes a picture of the whole page.
    pub(super) fn picture(&mut self, file: &Path) -> Result<(), String> {
        let answer = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}))?;
        write_data(&answer, file)
    }

    /// Prints the page on paper of a size in inches, as a PDF.
    pub(super) fn print(&mut self, (width, height): (f64, f64), file: &Path) -> Result<(), String> {
        let paper = json!({"paperWidth": width, "paperHeight": height, "preferCSSPageSize": false});
        let answer = self.call("Page.printToPDF", paper)?;
        write_data(&answer, file)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes the field `data` of an answer, which is in base 64.
fn write_data(answer: &Value, file: &Path) -> Result<(), String> {
    let text = answer["data"].as_str().ok_or("the browser sent no data")?;
    let bytes = decoded(text);
    fs::write(file, bytes).map_err(|error| format!("{}: {error}", file.display()))
}

/// The bytes of a text in base 64 (RFC 4648).
fn decoded(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> =
        text.bytes().filter(|digit| *digit != b'=').map(|digit| value(digit).into()).collect();
    let group = |group: &[u32]| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | group.get(at).copied().unwrap_or(0));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648.
    #[test]
    fn base_64() {
        for (text, expected) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decoded(text), expected.as_bytes());
        }
    }
}

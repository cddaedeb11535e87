//! Programs that are run and measured from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::table::Run;

/// How often the memory of a running program is looked at. The last look is so long before its
/// end at most.
const LOOK: Duration = Duration::from_millis(10);

/// What a program's end showed.
pub(crate) struct Ended {
    pub(crate) run: Run,
    pub(crate) stdout: String,
}

/// Whether a program can be started.
pub(crate) fn is_there(name: &str) -> bool {
    let version = Command::new(name).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// A command that sees nothing of the user's environment but where programs are.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn run(command: &mut Command, items: u32) -> anyhow::Result<Ended> {
    let (begun, cpu) = (Instant::now(), children_cpu()?);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let (ended, peak_kib) = (AtomicBool::new(false), AtomicU64::new(0));
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                peak_kib.fetch_max(peak(&status).unwrap_or(0), Ordering::Relaxed);
                thread::park_timeout(LOOK);
            }
        });
        let output = child.wait_with_output();
        ended.store(true, Ordering::Relaxed);
        output
    })?;
    let took = begun.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {stderr}", output.status);
    let mut run = Run::new(items, took).with_cpu(children_cpu()?.saturating_sub(cpu));
    run.memory_kib = peak_kib.into_inner();
    let stdout = String::from_utf8(output.stdout)?;
    Ok(Ended { run, stdout })
}

/// A shell loop of `curl`, a process and a connection a request.
pub(crate) fn curl_loop(url: &str, body: &Path, items: u32) -> anyhow::Result<Run> {
    const SCRIPT: &str = r#"i=0
while [ "$i" -lt "$1" ]; do
    curl -q -sSf -o "$3.answer" -H 'Content-Type: application/json' -H "Idempotency-Key: $i" --data-binary "@$3" "$2" || exit 1
    i=$((i + 1))
done"#;
    let mut shell = command("sh");
    shell
        .args(["-c", SCRIPT, "sh", &items.to_string(), url])
        .arg(body);
    Ok(run(&mut shell, items)?.run)
}

/// The most memory that a process has had so far, in KiB.
fn peak(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The processor time of all programs that have ended, and of those that they waited for.
fn children_cpu() -> anyhow::Result<Duration> {
    // Linux shows it in hundredths of a second, whatever the machine.
    const TICK_MS: u64 = 10;
    let text = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything, come the fields from the third on.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (user, system) = fields
        .get(13)
        .zip(fields.get(14))
        .context("/proc/self/stat")?;
    let ticks = user.parse::<u64>()? + system.parse::<u64>()?;
    Ok(Duration::from_millis(ticks * TICK_MS))
}

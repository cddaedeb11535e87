//! What people use without tickpost, as far as a package manager has it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::bare::Connections;
use crate::line::{Line, Side};
use crate::receiver::Receiver;
use crate::rows::{CONNECTIONS, line};
use crate::{Bench, bare, body, child};

/// How many items each peer has: it would take minutes with ten thousand.
const ITEMS: u32 = 500;

/// Accepts an item as durably as a shell can.
const ACCEPT: &str = r#"i=0
while [ "$i" -lt "$1" ]; do
    cp "$2" tmp/$i && sync tmp/$i && mv tmp/$i pending/$i && sync pending || exit 1
    i=$((i + 1))
done"#;

/// Sends one after the other, and moves what was answered.
const CURL: &str = r#"for file in pending/*; do
    curl -q -sSf -o answer -H 'Content-Type: application/json' -H "Idempotency-Key: ${file#*/}" \
        --data-binary "@$file" "$1" || exit 1
    mv "$file" confirmed/ && sync confirmed pending || exit 1
done"#;

/// Sends 16 at once, and then moves all.
const PARALLEL: &str = r#"for file in pending/*; do
    printf 'url = "%s"\nheader = "Idempotency-Key: %s"\nheader = "Content-Type: application/json"\ndata-binary = "@%s"\noutput = "answer"\nnext\n' \
        "$1" "${file#*/}" "$file"
done | sed '$d' > config
curl -q -sS --fail-early --parallel --parallel-max 16 -K config || exit 1
for file in pending/*; do mv "$file" confirmed/ || exit 1; done
sync confirmed pending"#;

/// Hands mail in, a process an item.
const QUEUE: &str = r#"i=0
while [ "$i" -lt "$1" ]; do
    { printf 'From: a@example.org\nTo: b@example.org\nSubject: %s\n\n' "$i"; cat "$2"; echo; } |
        nullmailer-inject b@example.org || exit 1
    i=$((i + 1))
done"#;

/// Sends what lies there, until the sink has seen enough. The mounts are this process's alone.
const MAIL: &str = r#"mount --bind "$1/etc" /etc/nullmailer && mount --bind "$1/spool" /var/spool/nullmailer && shift &&
exec "$@""#;

/// Every peer: what it accepts and sends a second, and what that is of the bare loop.
pub(crate) fn all(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(ITEMS);
    let mut lines = Vec::new();
    for (name, script) in [("curl-mv", CURL), ("curl-parallel", PARALLEL)] {
        let mut figures = Figures::default();
        bench.pairs(|_| {
            let place = bench.new_place();
            for directory in ["tmp", "pending", "confirmed"] {
                fs::create_dir_all(place.join(directory))?;
            }
            figures.accepts.push(shell(
                &place,
                ACCEPT,
                &[&items.to_string(), &file(bench)?],
                items,
            )?);
            let receiver = Receiver::start(CONNECTIONS)?;
            figures
                .drains
                .push(shell(&place, script, &[&receiver.url()], items)?);
            receiver.end()?.once(items)?;
            figures.bare.push(loop_of(bench)?);
            Ok(())
        })?;
        lines.extend(figures.lines(name));
    }
    if child::is_there("unshare")
        && Path::new("/etc/nullmailer").is_dir()
        && rustix::process::geteuid().is_root()
    {
        let mut figures = Figures::default();
        bench.pairs(|_| nullmailer(bench, items, &mut figures))?;
        lines.extend(figures.lines("nullmailer"));
    } else {
        eprintln!("budgets: no nullmailer: it takes root, and `apt-get install nullmailer`");
    }
    Ok(lines)
}

#[derive(Default)]
struct Figures {
    accepts: Vec<f64>,
    drains: Vec<f64>,
    bare: Vec<f64>,
}

impl Figures {
    fn lines(&self, name: &str) -> [Line; 2] {
        let none = (Side::AtLeast, None, None);
        let accepts = format!("{name}-accepts");
        [
            line(
                &accepts,
                "accepts, one at a time, synced",
                "/s",
                (&self.accepts, &[]),
                none,
            ),
            line(
                name,
                "drain against the bare loop",
                "/s",
                (&self.drains, &self.bare),
                none,
            ),
        ]
    }
}

/// The body, in a file.
fn file(bench: &Bench) -> anyhow::Result<String> {
    let path = bench.scratch.join("body");
    fs::write(&path, body())?;
    Ok(path.display().to_string())
}

/// Runs a script in a directory, and tells how many items a second it did.
fn shell(place: &Path, script: &str, words: &[&str], items: u32) -> anyhow::Result<f64> {
    let mut shell = child::command("sh");
    shell
        .current_dir(place)
        .args(["-c", script, "sh"])
        .args(words);
    Ok(child::run(&mut shell, items)?.run.rate())
}

/// The bare loop, with enough items to be one.
fn loop_of(bench: &Bench) -> anyhow::Result<f64> {
    let items = bench.some(10_000);
    let receiver = Receiver::start(CONNECTIONS)?;
    let run = bare::requests(
        &receiver.url(),
        &body(),
        items,
        &Connections::kept(CONNECTIONS),
    )?;
    receiver.end()?.once(items)?;
    Ok(run.rate())
}

/// nullmailer, with a configuration and a spool of its own over the system's, which stay as they are.
fn nullmailer(bench: &Bench, items: u32, figures: &mut Figures) -> anyhow::Result<()> {
    let sink = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let place = bench.new_place();
    for directory in ["etc", "spool/queue", "spool/tmp", "spool/failed"] {
        fs::create_dir_all(place.join(directory))?;
    }
    let remote = format!("127.0.0.1 smtp --port={}\n", sink.local_addr()?.port());
    for (name, text) in [("remotes", remote.as_str()), ("pausetime", "1\n")] {
        fs::write(place.join("etc").join(name), text)?;
    }
    // Its queueing program runs as the user `mail`, which has to get there too.
    let open = "chown -R mail:mail spool && mkfifo -m 622 spool/trigger && chown mail:mail spool/trigger && chmod a+x .. .";
    shell(&place, open, &[], 1)?;
    let inside = |script: &str, words: &[&str]| {
        let mut command = child::command("unshare");
        command.args(["-m", "sh", "-c", MAIL, "sh"]).arg(&place);
        command.args(["sh", "-c", script, "sh"]).args(words);
        command
    };
    let accepted = child::run(
        &mut inside(QUEUE, &[&items.to_string(), &file(bench)?]),
        items,
    )?;
    figures.accepts.push(accepted.run.rate());
    let begun = Instant::now();
    let mut sender = inside("exec nullmailer-send", &[])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let is_late = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = Vec::new();
            while seen.len() < items as usize && !is_late.load(Ordering::Relaxed) {
                // A session that fails is the sender's to notice.
                drop(serve(&sink.accept()?.0, &mut seen));
            }
            anyhow::Ok(seen)
        });
        while !seen.is_finished() && begun.elapsed() < Duration::from_mins(5) {
            thread::park_timeout(Duration::from_millis(1));
        }
        // A sink that still waits is woken by a connection that says nothing.
        if !seen.is_finished() {
            is_late.store(true, Ordering::Relaxed);
            drop(TcpStream::connect(sink.local_addr()?)?);
        }
        seen.join()
            .map_err(|_| anyhow::anyhow!("the sink panicked"))?
    });
    figures
        .drains
        .push(f64::from(items) / begun.elapsed().as_secs_f64());
    sender.kill()?;
    sender.wait()?;
    let mut seen = seen?;
    let mails = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!(
        (mails, seen.len()) == (items as usize, items as usize),
        "the sink saw {mails} mails, {} of {items} items",
        seen.len()
    );
    figures.bare.push(loop_of(bench)?);
    Ok(())
}

/// One SMTP session; kept are the subjects.
fn serve(stream: &TcpStream, seen: &mut Vec<String>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (mut lines, mut out) = (BufReader::new(stream).lines(), stream);
    out.write_all(b"220 sink\r\n")?;
    let mut is_mail = false;
    while let Some(line) = lines.next().transpose()? {
        if is_mail {
            is_mail = line != ".";
            seen.extend(line.strip_prefix("Subject: ").map(str::to_owned));
            if !is_mail {
                out.write_all(b"250 kept\r\n")?;
            }
            continue;
        }
        is_mail = line.eq_ignore_ascii_case("DATA");
        out.write_all(match line.get(..4).context("no command")? {
            "QUIT" => b"221 bye\r\n",
            "DATA" => b"354 go on\r\n",
            _ => b"250 ok\r\n".as_slice(),
        })?;
    }
    Ok(())
}

//! What is compared to: requests and writes with nothing around them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::table::Run;

/// How many files share one sync of the file system, as in `enqueue --batch`.
const GROUP: u32 = 1000;

/// How many connections there are, and whether they serve more than one request.
pub(crate) struct Connections {
    count: u32,
    kept: bool,
}

impl Connections {
    /// Connections that are kept alive.
    pub(crate) fn kept(count: u32) -> Self {
        Self { count, kept: true }
    }

    /// So many at once, each new for its request.
    pub(crate) fn fresh(count: u32) -> Self {
        Self { count, kept: false }
    }
}

/// Sends `items` requests, on one thread, and remembers nothing of them.
pub(crate) fn requests(
    url: &str,
    body: &str,
    items: u32,
    connections: &Connections,
) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let idle = if connections.kept { usize::MAX } else { 0 };
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        .tls_certs_only([])
        .pool_max_idle_per_host(idle)
        .timeout(Duration::from_mins(1))
        .build()?;
    let next = Arc::new(AtomicU32::new(0));
    let (begun, cpu) = (Instant::now(), thread_cpu());
    runtime.block_on(async {
        let mut senders = JoinSet::new();
        for _ in 0..connections.count {
            let (client, next) = (client.clone(), Arc::clone(&next));
            let (url, body) = (url.to_owned(), body.to_owned());
            senders.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= items {
                        return anyhow::Ok(());
                    }
                    let response = client
                        .post(&url)
                        .header("content-type", "application/json")
                        .header("idempotency-key", format!("k-{n}"))
                        .body(body.clone())
                        .send()
                        .await?;
                    ensure!(response.status().is_success(), "{}", response.status());
                    response.bytes().await?;
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender??;
        }
        anyhow::Ok(())
    })?;
    Ok(Run::new(items, begun.elapsed()).with_cpu(thread_cpu().saturating_sub(cpu)))
}

/// Writes the files that a batch writes, with one sync of the file system a group.
pub(crate) fn write_groups(dir: &Path, item: &[u8], items: u32) -> anyhow::Result<Run> {
    let (begun, cpu) = (Instant::now(), thread_cpu());
    for n in 0..items {
        File::create_new(dir.join(format!("{n:036}.jsonl")))?.write_all(item)?;
        if (n + 1) % GROUP == 0 || n + 1 == items {
            sync(dir)?;
        }
    }
    Ok(Run::new(items, begun.elapsed()).with_cpu(thread_cpu().saturating_sub(cpu)))
}

/// Writes each file as `enqueue` does: under another name, synced, renamed, the directory synced.
pub(crate) fn write_each(dir: &Path, item: &[u8], items: u32) -> anyhow::Result<Run> {
    let (begun, cpu) = (Instant::now(), thread_cpu());
    let directory = File::open(dir)?;
    let temporary = dir.join("tmp");
    for n in 0..items {
        let mut file = File::create_new(&temporary)?;
        file.write_all(item)?;
        file.sync_all()?;
        fs::rename(&temporary, dir.join(format!("{n:036}.jsonl")))?;
        directory.sync_all()?;
    }
    Ok(Run::new(items, begun.elapsed()).with_cpu(thread_cpu().saturating_sub(cpu)))
}

/// Makes everything durable that the file system of a directory holds.
pub(crate) fn sync(dir: &Path) -> anyhow::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// The processor time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

//! Clocks and figures.

use std::fmt::Write as _;
use std::future::Future;
use std::process::Child;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::Outcome;

/// One round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Processor time of all threads of all processes that take part, nanoseconds per operation.
    pub(crate) cpu_ns: f64,
    /// Operations per second.
    pub(crate) rate: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Load averages of the machine.
pub(crate) fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Processor time of the living threads of a process, from the scheduler's own account.
pub(crate) fn cpu_of(process: &str) -> Outcome<Duration> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// Processor time of this process and its children named.
pub(crate) fn cpu_with(children: &[&Child]) -> Outcome<Duration> {
    let mut total = cpu_of("self")?;
    for child in children {
        total += cpu_of(&child.id().to_string())?;
    }
    Ok(total)
}

/// Resident bytes of this process.
pub(crate) fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in the status")?;
    let kib: u64 = line.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(kib * 1_024)
}

/// Figures of a closed loop from its latencies and what it took.
pub(crate) fn figures(mut latencies: Vec<u32>, wall: Duration, cpu: Duration) -> Figures {
    latencies.sort_unstable();
    let count = latencies.len();
    let at = |share: f64| {
        let place = ((count as f64 * share) as usize).min(count.saturating_sub(1));
        f64::from(latencies.get(place).copied().unwrap_or_default()) / 1_000.0
    };
    Figures {
        cpu_ns: cpu.as_nanos() as f64 / count as f64,
        rate: count as f64 / wall.as_secs_f64(),
        p50_us: at(0.5),
        p99_us: at(0.99),
    }
}

/// Nanoseconds since `from`, for a list of latencies.
pub(crate) fn nanos_since(from: Instant) -> u32 {
    u32::try_from(from.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

/// Runs `ask` in a closed loop of `outstanding` callers for about `span`, after a tenth of it to warm up.
pub(crate) async fn closed_loop<F, E>(
    outstanding: usize,
    span: Duration,
    children: &[&Child],
    ask: impl Fn() -> F,
) -> Outcome<Figures>
where
    F: Future<Output = Result<(), E>>,
    E: std::error::Error + 'static,
{
    let callers = async |until: Instant| -> Outcome<Vec<u32>> {
        let caller = async || {
            let mut latencies = Vec::with_capacity(1 << 16);
            loop {
                let begin = Instant::now();
                if begin >= until {
                    return Ok::<_, E>(latencies);
                }
                ask().await?;
                latencies.push(nanos_since(begin));
            }
        };
        let mut callers: FuturesUnordered<_> = (0..outstanding).map(|_| caller()).collect();
        let mut all = Vec::new();
        while let Some(latencies) = callers.next().await {
            all.append(&mut latencies?);
        }
        Ok(all)
    };
    callers(Instant::now() + span / 10).await?;
    let (cpu, begin) = (cpu_with(children)?, Instant::now());
    let latencies = callers(begin + span).await?;
    let wall = begin.elapsed();
    Ok(figures(latencies, wall, cpu_with(children)? - cpu))
}

/// Least, with the spread of all rounds.
fn spread(rounds: &[Figures], of: impl Fn(&Figures) -> f64) -> (f64, f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in rounds.iter().map(of) {
        least = least.min(value);
        most = most.max(value);
    }
    (least, least, most)
}

/// The best of some rounds, each figure by itself.
pub(crate) fn best(rounds: &[Figures]) -> Figures {
    Figures {
        cpu_ns: spread(rounds, |f| f.cpu_ns).0,
        rate: spread(rounds, |f| f.rate).2,
        p50_us: spread(rounds, |f| f.p50_us).0,
        p99_us: spread(rounds, |f| f.p99_us).0,
    }
}

/// One line about some rounds: best, and least to most.
pub(crate) fn show(name: &str, rounds: &[Figures]) {
    let mut line = format!("{name:<34}");
    let mut add = |unit: &str, best: f64, (_, least, most): (f64, f64, f64)| {
        // Writing to a String does not fail.
        let _ = write!(line, " | {best:>9.1} {unit} [{least:.1}..{most:.1}]");
    };
    let top = best(rounds);
    add("cpu ns/op", top.cpu_ns, spread(rounds, |f| f.cpu_ns));
    add("p50 us", top.p50_us, spread(rounds, |f| f.p50_us));
    add("p99 us", top.p99_us, spread(rounds, |f| f.p99_us));
    add("op/s", top.rate, spread(rounds, |f| f.rate));
    println!("{line}");
}

/// Figures as JSON.
pub(crate) fn json(rounds: &[Figures]) -> serde_json::Value {
    let top = best(rounds);
    let range = |of: fn(&Figures) -> f64| {
        let (_, least, most) = spread(rounds, of);
        serde_json::json!([least, most])
    };
    serde_json::json!({
        "cpu_ns": top.cpu_ns, "cpu_ns_range": range(|f| f.cpu_ns),
        "p50_us": top.p50_us, "p50_us_range": range(|f| f.p50_us),
        "p99_us": top.p99_us, "p99_us_range": range(|f| f.p99_us),
        "rate": top.rate, "rate_range": range(|f| f.rate),
    })
}

//! A row of the budgets table: what was measured, beside what it must reach.

use std::fmt;

/// On which side of a budget a figure has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// One row. Where there is nothing to compare with, the budget is of the figure itself.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Vec<f64>,
    pub(crate) bare: Vec<f64>,
    pub(crate) side: Side,
    pub(crate) must: Option<f64>,
    pub(crate) aim: Option<f64>,
}

impl Line {
    /// What is held against the budget: the median of the pairs' ratios, or of the figures.
    fn figure(&self) -> f64 {
        if self.bare.is_empty() {
            return median(&self.ours);
        }
        let pairs = self.ours.iter().zip(&self.bare);
        let ratios: Vec<f64> = pairs.map(|(ours, bare)| ours / bare.max(1e-9)).collect();
        median(&ratios)
    }

    fn reaches(&self, budget: Option<f64>) -> bool {
        budget.is_none_or(|budget| match self.side {
            Side::AtLeast => self.figure() >= budget,
            Side::AtMost => self.figure() <= budget,
        })
    }

    pub(crate) fn falls_short(&self) -> bool {
        !self.reaches(self.must)
    }

    pub(crate) const HEAD: &str = "| row | what | ours | bare | ratio | must reach | aim for | |\n\
        |---|---|--:|--:|--:|--:|--:|---|";
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, sign) = match self.side {
            Side::AtLeast => (self.unit, '≥'),
            Side::AtMost => (self.unit, '≤'),
        };
        let budget = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{sign} {of}"));
        let (bare, ratio) = if self.bare.is_empty() {
            (String::new(), String::new())
        } else {
            let bare = format!("{} {unit}", short(median(&self.bare)));
            (bare, format!("{:.3}", self.figure()))
        };
        let verdict = if self.falls_short() {
            "**falls short**"
        } else if !self.reaches(self.aim) {
            "misses its aim"
        } else {
            ""
        };
        write!(
            f,
            "| `{}` | {} | {} {unit} | {bare} | {ratio} | {} | {} | {verdict} |",
            self.name,
            self.what,
            short(median(&self.ours)),
            budget(self.must),
            budget(self.aim),
        )
    }
}

/// The middle one; of an even number the mean of the two.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |n: usize| sorted.get(n).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(last / 2), at(last.div_ceil(2)))
}

/// Three digits are more than such figures are good for.
fn short(figure: f64) -> String {
    if figure >= 100.0 {
        format!("{figure:.0}")
    } else {
        format!("{figure:.2}")
    }
}

//! Tables: as wide as the terminal, or in a pipe as wide as they are.
//!
//! For people: what is free text wraps within its column; when even that is not enough, the
//! columns that matter least are left out, and named.
//!
//! For scripts: every column, nothing cut or wrapped, two blanks or more between columns and
//! never two within a cell, `-` for an empty one. `awk -F '  +'` takes it apart.

use anstyle::Style;
use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement};
use unicode_width::UnicodeWidthStr as _;

use super::output;

/// Blanks between columns.
const GAP: u16 = 2;

/// A column of free text is not made narrower than this.
const WRAPPED_WIDTH_MIN: u16 = 24;

/// Stands round a word to be styled while the table is laid out: it has no width, and
/// [`Cell::new`] keeps it out of other texts.
const MARK: char = '\u{2060}';

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    title: &'static str,
    rank: u8,
    wraps: bool,
}

impl Column {
    /// A column of words that are never broken. Where there is no room for all, those of the
    /// lowest rank come first; one of rank 0 is never left out.
    pub(super) const fn new(title: &'static str, rank: u8) -> Self {
        Self {
            title,
            rank,
            wraps: false,
        }
    }

    /// A column of free text, which may wrap.
    pub(super) const fn text(title: &'static str, rank: u8) -> Self {
        Self {
            title,
            rank,
            wraps: true,
        }
    }
}

/// What stands in a row under a column.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// Text, on one line and without what would steer a terminal.
    pub(super) fn new(text: impl Into<String>) -> Self {
        let text: String = text.into();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = output::plain(&words.join(" ")).replace(MARK, "");
        let text = if text.is_empty() {
            "-".to_owned()
        } else {
            text
        };
        Self { text, style: None }
    }

    /// Text in a style.
    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            style: Some(style),
            ..Self::new(text)
        }
    }
}

/// Rows under columns.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    titled: bool,
    rows: Vec<Vec<Cell>>,
}

/// A table as it is printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Laid {
    /// Its lines, styles included.
    pub(super) lines: Vec<String>,
    /// The columns that were left out.
    pub(super) hidden: Vec<&'static str>,
}

impl Table {
    /// A table without rows.
    pub(super) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            titled: true,
            rows: Vec::new(),
        }
    }

    /// A table without rows and without the line of titles.
    pub(super) fn untitled(columns: &[Column]) -> Self {
        Self {
            titled: false,
            ..Self::new(columns)
        }
    }

    /// Adds a row, a cell a column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Lays it out in `width` columns of a terminal, or without a limit.
    pub(super) fn lay_out(&self, width: Option<u16>) -> Laid {
        let shown = self.shown(width);
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        table.set_content_arrangement(match width {
            Some(_) => ContentArrangement::Dynamic,
            None => ContentArrangement::Disabled,
        });
        if let Some(width) = width {
            table.set_width(width);
        }
        let mut styles = Vec::new();
        if self.titled {
            table.set_header(shown.iter().map(|at| self.columns[*at].title));
        }
        for row in &self.rows {
            table.add_row(shown.iter().map(|at| {
                let Some(cell) = row.get(*at) else {
                    return "-".to_owned();
                };
                match cell.style {
                    Some(style) => {
                        styles.push(style);
                        format!("{MARK}{}{MARK}", cell.text)
                    }
                    None => cell.text.clone(),
                }
            }));
        }
        for (index, at) in shown.iter().enumerate() {
            let is_last = index + 1 == shown.len();
            if let Some(column) = table.column_mut(index) {
                column.set_padding((0, if is_last { 0 } else { GAP }));
                if !self.columns[*at].wraps {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        let mut styles = styles.into_iter();
        let mut open = None;
        let lines = table.lines();
        Laid {
            lines: lines
                .map(|line| dress(line.trim_end(), &mut styles, &mut open))
                .collect(),
            hidden: (0..self.columns.len())
                .filter(|at| !shown.contains(at))
                .map(|at| self.columns[at].title)
                .collect(),
        }
    }

    /// The columns that there is room for, by their numbers.
    fn shown(&self, width: Option<u16>) -> Vec<usize> {
        let all = 0..self.columns.len();
        let Some(width) = width else {
            return all.collect();
        };
        let mut by_rank: Vec<usize> = all.collect();
        by_rank.sort_by_key(|at| self.columns[*at].rank);
        let mut room = usize::from(width) + usize::from(GAP);
        by_rank.retain(|at| {
            let need = self.width_min(*at) + usize::from(GAP);
            let fits = need <= room || self.columns[*at].rank == 0;
            if fits {
                room = room.saturating_sub(need);
            }
            fits
        });
        by_rank.sort_unstable();
        by_rank
    }

    /// The width below which a column cannot be shown.
    fn width_min(&self, at: usize) -> usize {
        let column = self.columns[at];
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let widest = cells.map(|cell| cell.text.width()).max().unwrap_or(0);
        let title = if self.titled { column.title.width() } else { 0 };
        if column.wraps {
            widest.min(usize::from(WRAPPED_WIDTH_MIN)).max(title)
        } else {
            widest.max(title)
        }
    }
}

/// Puts the styles where the marks are.
fn dress(line: &str, styles: &mut impl Iterator<Item = Style>, open: &mut Option<Style>) -> String {
    let mut dressed = String::with_capacity(line.len());
    for c in line.chars() {
        if c != MARK {
            dressed.push(c);
            continue;
        }
        let escape = if let Some(style) = open.take() {
            format!("{style:#}")
        } else {
            *open = styles.next();
            open.map_or(String::new(), |style| style.to_string())
        };
        dressed.push_str(&escape);
    }
    dressed
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("id", 0),
        Column::new("state", 0),
        Column::text("why", 1),
        Column::new("due", 2),
    ];

    fn table(why: &str) -> Table {
        let mut table = Table::new(&COLUMNS);
        let green = AnsiColor::Green.on_default();
        for id in ["a", "b"] {
            table.row(vec![
                Cell::new(id),
                Cell::styled("confirmed", green),
                Cell::new(why),
                Cell::new("2026-11-29 15:40:03"),
            ]);
        }
        table
    }

    #[test]
    fn a_pipe_gets_every_column_whole_and_apart() {
        let why = "word ".repeat(100);
        let laid = table(&format!("{why}\t\n two   blanks")).lay_out(None);
        assert_eq!(laid.hidden, [""; 0]);
        assert_eq!(laid.lines.len(), 3, "a row a line");
        for line in &laid.lines[1..] {
            let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).collect();
            assert_eq!(cells.len(), 4, "{line}");
            assert_eq!(cells[2].trim(), format!("{why}two blanks"));
        }
    }

    #[test]
    fn a_terminal_wraps_free_text_and_leaves_out_what_matters_least() {
        let table = table("the receiver is overloaded and asks to wait");
        for width in 10..100 {
            let laid = table.lay_out(Some(width));
            for line in &laid.lines {
                let bare = anstream::adapter::strip_str(line).to_string();
                assert!(
                    bare.width() <= usize::from(width).max(13),
                    "{width}: {bare}"
                );
            }
            let all = laid.lines.join("\n");
            assert!(all.contains("confirmed"), "{width}: {all}");
            let hidden: &[&str] = match width {
                ..34 => &["why", "due"],
                34..39 => &["why"],
                39..60 => &["due"],
                _ => &[],
            };
            assert_eq!(laid.hidden, hidden, "{width}: {all}");
        }
    }

    #[test]
    fn the_styled_word_alone_is_coloured_and_text_cannot_take_its_place() {
        let mut table = Table::new(&COLUMNS[..2]);
        let green = AnsiColor::Green.on_default();
        table.row(vec![
            Cell::new("x\u{2060}y\u{1b}[31m"),
            Cell::styled("confirmed", green),
        ]);
        let laid = table.lay_out(None);
        let word = format!("{green}confirmed{green:#}");
        assert!(laid.lines[1].ends_with(&word), "{laid:?}");
        assert!(laid.lines[1].starts_with("xy\u{fffd}[31m  "), "{laid:?}");
    }

    #[test]
    fn an_empty_cell_is_a_dash() {
        assert_eq!(Cell::new(" \t").text, "-");
    }
}

//! Reports as tables for people and as rows for spreadsheets.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, presets};
use serde::Serialize;

use crate::InputError;

/// One table with what must be said about it.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its title, a sentence or less.
    pub title: String,
    /// Column heads.
    pub header: Vec<&'static str>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
    /// Sentences below it.
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(title: impl Into<String>, header: &[&'static str]) -> Self {
        Self {
            title: title.into(),
            header: header.to_vec(),
            ..Self::default()
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a sentence below.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// A report in the forms in which it leaves.
pub trait Report: Serialize {
    /// For people.
    fn tables(&self) -> Vec<Table>;

    /// Draws charts into `directory`; gives the names of the files.
    ///
    /// # Errors
    /// [`InputError::File`].
    fn charts(&self, directory: &std::path::Path) -> Result<Vec<String>, InputError>;
}

/// Writes tables for a terminal: no lines, the first column to the left, numbers to the right.
///
/// # Errors
/// The writer's.
pub fn write_text(out: &mut dyn Write, tables: &[Table]) -> io::Result<()> {
    for (at, table) in tables.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", table.title)?;
        if !table.rows.is_empty() {
            let mut drawn = comfy_table::Table::new();
            drawn
                .load_preset(presets::NOTHING)
                .set_content_arrangement(ContentArrangement::Disabled)
                .set_header(table.header.iter().copied());
            for row in &table.rows {
                drawn.add_row(row);
            }
            for (at, column) in drawn.column_iter_mut().enumerate() {
                column.set_padding((2, 0));
                let mut cells = table.rows.iter().filter_map(|row| row.get(at));
                let figure = |cell: &String| {
                    cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                };
                if at > 0 && cells.all(figure) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            for line in drawn.lines() {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        for note in &table.notes {
            writeln!(out, "  {note}")?;
        }
    }
    Ok(())
}

/// Writes a report as CSV, one figure a line: section, item, measure, value.
///
/// # Errors
/// The writer's.
pub fn write_csv(out: &mut dyn Write, report: &impl Serialize) -> io::Result<()> {
    let value = serde_json::to_value(report).map_err(io::Error::from)?;
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["section", "item", "measure", "value"])?;
    let mut rows = Vec::new();
    flatten(&value, "", "", "", &mut rows);
    for row in rows {
        writer.write_record(row)?;
    }
    writer.flush()
}

fn flatten(
    value: &serde_json::Value,
    section: &str,
    item: &str,
    measure: &str,
    rows: &mut Vec<[String; 4]>,
) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let deeper =
                    if section.is_empty() && matches!(value, Value::Object(_) | Value::Array(_)) {
                        flatten(value, name, item, measure, rows);
                        continue;
                    } else if measure.is_empty() {
                        name.clone()
                    } else {
                        format!("{measure}.{name}")
                    };
                flatten(value, section, item, &deeper, rows);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                let named = value.get("name").and_then(Value::as_str);
                let name = named.map_or_else(|| (at + 1).to_string(), str::to_owned);
                let inner = if item.is_empty() {
                    name
                } else {
                    format!("{item}.{name}")
                };
                flatten(value, section, &inner, measure, rows);
            }
        }
        Value::Null => {}
        scalar => {
            let text = scalar
                .as_str()
                .map_or_else(|| scalar.to_string(), str::to_owned);
            rows.push([
                section.to_owned(),
                item.to_owned(),
                measure.to_owned(),
                text,
            ]);
        }
    }
}

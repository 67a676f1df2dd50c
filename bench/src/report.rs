//! Rows of figures: what was asked, what was measured, the goal, and whether it is met.

/// Which side of the goal is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Measured must not exceed it.
    AtMost(f64),
    /// Measured must reach it.
    AtLeast(f64),
    /// For comparison only.
    None,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was asked; a filter matches it.
    pub name: String,
    /// The figure.
    pub measured: f64,
    /// Its unit; `x` for ratios.
    pub unit: &'static str,
    /// What it should be.
    pub goal: Goal,
    /// What it was made of.
    pub note: String,
}

impl Row {
    /// Whether the goal is met, if there is one.
    pub fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::AtMost(goal) => Some(self.measured <= goal),
            Goal::AtLeast(goal) => Some(self.measured >= goal),
            Goal::None => None,
        }
    }

    fn goal_value(&self) -> Option<f64> {
        match self.goal {
            Goal::AtMost(goal) | Goal::AtLeast(goal) => Some(goal),
            Goal::None => None,
        }
    }

    fn verdict(&self) -> &'static str {
        match self.met() {
            Some(true) => "MET",
            Some(false) => "MISSED",
            None => "-",
        }
    }
}

/// Collects rows, prints each as it comes, and all at the end as JSON if asked.
pub struct Report {
    json: bool,
    filter: Vec<String>,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(json: bool, filter: Vec<String>) -> Self {
        if !json {
            println!(
                "{:<58} {:>10} {:<6} {:>9} {:>7}  {:<6}  note",
                "what", "measured", "unit", "goal", "ratio", ""
            );
        }
        Self {
            json,
            filter,
            rows: Vec::new(),
        }
    }

    /// Whether rows of a group whose names begin so are wanted.
    pub fn wants(&self, group: &str) -> bool {
        self.filter.is_empty()
            || self
                .filter
                .iter()
                .any(|filter| group.contains(filter.as_str()) || filter.contains(group))
    }

    pub fn row(
        &mut self,
        name: impl Into<String>,
        measured: f64,
        unit: &'static str,
        goal: Goal,
        note: impl Into<String>,
    ) {
        let row = Row {
            name: name.into(),
            measured,
            unit,
            goal,
            note: note.into(),
        };
        if !self.json {
            let (sign, goal) = match row.goal {
                Goal::AtMost(goal) => ("<= ", number(goal)),
                Goal::AtLeast(goal) => (">= ", number(goal)),
                Goal::None => ("", "-".to_owned()),
            };
            let ratio = row.goal_value().map_or("-".to_owned(), |goal| {
                if goal == 0.0 {
                    "-".to_owned()
                } else {
                    format!("{:.2}", row.measured / goal)
                }
            });
            println!(
                "{:<58} {:>10} {:<6} {:>9} {:>7}  {:<6}  {}",
                row.name,
                number(row.measured),
                row.unit,
                format!("{sign}{goal}"),
                ratio,
                row.verdict(),
                row.note
            );
        }
        self.rows.push(row);
    }

    /// Prints the rest and answers how many goals were missed.
    pub fn finish(self) -> usize {
        let missed: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.met() == Some(false))
            .collect();
        if self.json {
            let rows: Vec<_> = self.rows.iter().map(json).collect();
            println!("[\n{}\n]", rows.join(",\n"));
        } else {
            let met = self
                .rows
                .iter()
                .filter(|row| row.met() == Some(true))
                .count();
            println!("\n{met} goals met, {} missed", missed.len());
            for row in &missed {
                println!(
                    "  missed: {} ({} {})",
                    row.name,
                    number(row.measured),
                    row.unit
                );
            }
        }
        missed.len()
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.3}"),
        middle if middle < 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Names and notes are ours: quotes and backslashes are all that JSON minds in them.
fn json(row: &Row) -> String {
    let text = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let figure = |value: f64| {
        if value.is_finite() {
            format!("{value}")
        } else {
            "null".to_owned()
        }
    };
    let met = row.met().map_or("null".to_owned(), |met| met.to_string());
    let (kind, goal) = match row.goal {
        Goal::AtMost(goal) => ("at_most", figure(goal)),
        Goal::AtLeast(goal) => ("at_least", figure(goal)),
        Goal::None => ("none", "null".to_owned()),
    };
    format!(
        "  {{\"what\": {}, \"measured\": {}, \"unit\": {}, \"goal_kind\": {}, \"goal\": {goal}, \"met\": {met}, \"note\": {}}}",
        text(&row.name),
        figure(row.measured),
        text(row.unit),
        text(kind),
        text(&row.note)
    )
}

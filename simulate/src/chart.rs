//! Charts as SVG: bars that lie, curves with labelled ends, no more ink than that.
//!
//! Text is sized by hand, as there is no font to ask on a server: labels keep clear of each other
//! by the room that is left for them.

use std::path::Path;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{InputError, compare::Comparison, hashes::HashComparison, report::Simulation, text};

const WIDTH: u32 = 920;
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(215, 215, 215);
const LIMIT: RGBColor = RGBColor(170, 60, 60);
/// Told apart by most people with colour blindness (Okabe, Ito, 2008).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

/// One colour of a chart.
struct Series {
    label: String,
    values: Vec<Option<f64>>,
}

/// A line through the whole chart, with what it means.
struct Mark {
    at: f64,
    label: String,
}

fn mark(at: f64, label: impl Into<String>) -> Mark {
    Mark {
        at,
        label: label.into(),
    }
}

fn series(label: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Series {
    Series {
        label: label.into(),
        values: values.into_iter().collect(),
    }
}

fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: u32,
    anchor: HPos,
    colour: RGBColor,
) -> Drawn {
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(&colour)
        .pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
        .map_err(said)
}

fn line(area: &Area<'_>, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) -> Drawn {
    area.draw(&PathElement::new(points, colour.stroke_width(width)))
        .map_err(said)
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// About five round steps up to `most`.
fn ticks(most: f64) -> Vec<f64> {
    let rough = most / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0);
    let mut ticks = Vec::new();
    let mut at = 0.0;
    while at <= most * 1.000_001 {
        ticks.push(at);
        at += step;
    }
    ticks
}

fn tick_text(value: f64) -> String {
    if value >= 1_000.0 {
        return text::grouped(value.round() as u64);
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a chart of lying bars shows.
struct Bars<'a> {
    title: &'a str,
    unit: &'a str,
    rows: Vec<String>,
    series: Vec<Series>,
    marks: Vec<Mark>,
    /// Longest bar that is drawn whole; longer ones are cut, and their number says how long.
    most: f64,
}

fn bars(path: &Path, chart: &Bars<'_>) -> Drawn {
    let count = chart.series.len() as i32;
    let (bar, gap, top) = (14, 12, 92);
    let row_height = bar * count + gap;
    let height = top + row_height * chart.rows.len() as i32 + 50;
    let longest = chart
        .rows
        .iter()
        .map(|row| row.chars().count())
        .max()
        .unwrap_or(0) as i32;
    let left = (longest * 8 + 24).clamp(80, 330);
    let right = WIDTH as i32 - 80;
    let x = |value: f64| left + ((value / chart.most).min(1.0) * f64::from(right - left)) as i32;
    let bottom = height - 44;

    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    write(&area, chart.title, (16, 22), 19, HPos::Left, INK)?;
    legend(&area, &chart.series, 50)?;
    for tick in ticks(chart.most) {
        line(&area, vec![(x(tick), top - 8), (x(tick), bottom)], FAINT, 1)?;
        write(
            &area,
            &tick_text(tick),
            (x(tick), bottom + 12),
            13,
            HPos::Center,
            INK,
        )?;
    }
    write(
        &area,
        chart.unit,
        ((left + right) / 2, bottom + 31),
        13,
        HPos::Center,
        INK,
    )?;
    // Under the bars, so that no number is struck through.
    for mark in &chart.marks {
        line(
            &area,
            vec![(x(mark.at), top - 8), (x(mark.at), bottom)],
            LIMIT,
            1,
        )?;
        write(
            &area,
            &mark.label,
            (x(mark.at), top - 17),
            12,
            HPos::Center,
            LIMIT,
        )?;
    }
    for (at, name) in (0..).zip(&chart.rows) {
        let y = top + at * row_height;
        let middle = y + bar * count / 2;
        write(&area, name, (left - 10, middle), 14, HPos::Right, INK)?;
        for (place, series) in (0..).zip(&chart.series) {
            let Some(value) = series.values[at as usize] else {
                continue;
            };
            let (from, to) = (y + place * bar + 1, y + (place + 1) * bar - 1);
            let colour = COLOURS[place as usize % COLOURS.len()];
            let body = Rectangle::new(
                [(left, from), (x(value).max(left + 1), to)],
                colour.filled(),
            );
            area.draw(&body).map_err(said)?;
            let beyond = if value > chart.most { " (cut)" } else { "" };
            let label = format!("{}{beyond}", figure(value));
            let room = x(value) + 7 + 7 * label.len() as i32;
            let ground = Rectangle::new([(x(value) + 3, from), (room, to)], WHITE.filled());
            area.draw(&ground).map_err(said)?;
            write(
                &area,
                &label,
                (x(value) + 5, y + place * bar + bar / 2),
                12,
                HPos::Left,
                INK,
            )?;
        }
    }
    area.present().map_err(said)
}

fn figure(value: f64) -> String {
    if value >= 100.0 {
        text::grouped(value.round() as u64)
    } else {
        format!("{value:.2}")
    }
}

fn legend(area: &Area<'_>, series: &[Series], y: i32) -> Drawn {
    let mut at = 16;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let patch = Rectangle::new([(at, y - 6), (at + 12, y + 6)], colour.filled());
        area.draw(&patch).map_err(said)?;
        write(area, &series.label, (at + 18, y), 14, HPos::Left, INK)?;
        at += 18 + series.label.chars().count() as i32 * 8 + 24;
    }
    Ok(())
}

/// What a chart of curves shows: values at steps that stand equally far apart.
struct Curves<'a> {
    title: &'a str,
    across: &'a str,
    unit: &'a str,
    steps: Vec<String>,
    series: Vec<Series>,
    marks: Vec<Mark>,
    least: f64,
    most: f64,
}

fn curves(path: &Path, chart: &Curves<'_>) -> Drawn {
    let (height, left, top) = (460, 74, 92);
    let (right, bottom) = (WIDTH as i32 - 150, height - 70);
    let steps = chart.steps.len().max(2) as f64 - 1.0;
    let x = |at: usize| left + (at as f64 / steps * f64::from(right - left)) as i32;
    let y = |value: f64| {
        let part = ((value - chart.least) / (chart.most - chart.least)).clamp(0.0, 1.0);
        bottom - (part * f64::from(bottom - top)) as i32
    };
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(said)?;
    write(&area, chart.title, (16, 22), 19, HPos::Left, INK)?;
    legend(&area, &chart.series, 50)?;
    write(&area, chart.unit, (16, 74), 13, HPos::Left, INK)?;
    for tick in ticks(chart.most)
        .into_iter()
        .filter(|tick| *tick >= chart.least)
    {
        line(&area, vec![(left, y(tick)), (right, y(tick))], FAINT, 1)?;
        write(
            &area,
            &tick_text(tick),
            (left - 8, y(tick)),
            13,
            HPos::Right,
            INK,
        )?;
    }
    // Labels that would run into each other are left out.
    let room = chart
        .steps
        .iter()
        .map(|step| step.chars().count())
        .max()
        .unwrap_or(1)
        * 9;
    let every = (room as f64 * (steps + 1.0) / f64::from(right - left))
        .ceil()
        .max(1.0) as usize;
    for (at, step) in chart
        .steps
        .iter()
        .enumerate()
        .filter(|(at, _)| at % every == 0)
    {
        line(&area, vec![(x(at), bottom), (x(at), bottom + 5)], INK, 1)?;
        write(&area, step, (x(at), bottom + 17), 13, HPos::Center, INK)?;
    }
    write(
        &area,
        chart.across,
        ((left + right) / 2, bottom + 42),
        13,
        HPos::Center,
        INK,
    )?;
    for mark in &chart.marks {
        line(
            &area,
            vec![(left, y(mark.at)), (right, y(mark.at))],
            LIMIT,
            1,
        )?;
        write(
            &area,
            &mark.label,
            (right + 8, y(mark.at)),
            12,
            HPos::Left,
            LIMIT,
        )?;
    }
    for (series, colour) in chart.series.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<(i32, i32)> = series
            .values
            .iter()
            .enumerate()
            .filter_map(|(at, value)| Some((x(at), y((*value)?))))
            .collect();
        line(&area, points.clone(), *colour, 2)?;
        if points.len() <= 40 {
            for point in points {
                area.draw(&Circle::new(point, 4, colour.filled()))
                    .map_err(said)?;
            }
        }
    }
    area.present().map_err(said)
}

/// Makes the directory and draws one chart after the other into it.
struct Sheaf<'a> {
    directory: &'a Path,
    names: Vec<String>,
}

impl<'a> Sheaf<'a> {
    fn new(directory: &'a Path) -> Result<Self, InputError> {
        std::fs::create_dir_all(directory).map_err(|source| InputError::File {
            path: directory.display().to_string(),
            source,
        })?;
        Ok(Self {
            directory,
            names: Vec::new(),
        })
    }

    fn draw(&mut self, name: &str, draw: impl FnOnce(&Path) -> Drawn) -> Result<(), InputError> {
        let path = self.directory.join(name);
        let shown = path.display().to_string();
        draw(&path).map_err(|error| InputError::File {
            path: shown.clone(),
            source: std::io::Error::other(error),
        })?;
        self.names.push(shown);
        Ok(())
    }
}

fn most(values: impl Iterator<Item = f64>, at_least: f64) -> f64 {
    values.fold(at_least, f64::max)
}

pub(crate) fn simulation(report: &Simulation, directory: &Path) -> Result<Vec<String>, InputError> {
    let mut sheaf = Sheaf::new(directory)?;
    sheaf.draw("shares.svg", |path| shares(report, path))?;
    if !report.events.is_empty() {
        sheaf.draw("movement.svg", |path| {
            let events = || report.events.iter();
            let percent = |part: f64| Some(part * 100.0);
            let most = most(
                events().map(|event| event.keys.max(event.least) * 100.0),
                1.0,
            );
            bars(
                path,
                &Bars {
                    title: "Keys that get another owner, and the least that must",
                    unit: "percent of all keys",
                    rows: events().map(|event| event.name.clone()).collect(),
                    series: vec![
                        series("moved", events().map(|event| percent(event.keys))),
                        series("least possible", events().map(|event| percent(event.least))),
                    ],
                    marks: Vec::new(),
                    most,
                },
            )
        })?;
    }
    if !report.sweep.is_empty() {
        for name in ["slots", "tokens"] {
            let swept: Vec<_> = report
                .sweep
                .iter()
                .filter(|swept| swept.name == name)
                .collect();
            if swept.len() < 2 {
                continue;
            }
            sheaf.draw(&format!("sweep-{name}.svg"), |path| {
                let keys = || swept.iter().map(|swept| swept.keys.max_over_mean);
                let requests = || swept.iter().map(|swept| swept.requests_max_over_mean);
                let title = if name == "slots" {
                    "More slots: how full the fullest owner is"
                } else {
                    "More tokens: how full the fullest owner is"
                };
                let mut marks = vec![mark(1.0, "fair share")];
                if report.hot_key.floor > 1.0 {
                    marks.push(mark(report.hot_key.floor, "the hottest key alone"));
                }
                curves(
                    path,
                    &Curves {
                        title,
                        across: if name == "slots" {
                            "slots"
                        } else {
                            "tokens per unit of weight"
                        },
                        unit: "times the fair share",
                        steps: swept
                            .iter()
                            .map(|swept| text::grouped(swept.pieces))
                            .collect(),
                        series: vec![
                            series("by keys", keys().map(Some)),
                            series("by requests", requests().map(Some)),
                        ],
                        marks,
                        least: 0.0,
                        most: most(keys().chain(requests()), report.hot_key.floor.max(1.2)) * 1.05,
                    },
                )
            })?;
        }
    }
    if !report.cache.is_empty() {
        sheaf.draw("store-load.svg", |path| {
            let moments = &crate::report::MOMENTS;
            // The four that the store feels most, one curve each.
            let mut felt: Vec<_> = report.cache.iter().collect();
            felt.sort_by(|a, b| b.factor.total_cmp(&a.factor));
            felt.truncate(COLOURS.len());
            let top = most(felt.iter().map(|felt| felt.factor), 1.2);
            curves(
                path,
                &Curves {
                    title: "Reads that reach the store after a change",
                    across: "time after the change (steps are not to scale)",
                    unit: "times the store's reads before",
                    steps: moments.iter().map(|moment| span(*moment)).collect(),
                    series: felt
                        .iter()
                        .map(|felt| {
                            series(
                                &felt.name,
                                felt.later.iter().map(|later| Some(later.factor)),
                            )
                        })
                        .collect(),
                    marks: vec![mark(1.0, "before")],
                    least: 0.0,
                    most: top * 1.05,
                },
            )
        })?;
    }
    Ok(sheaf.names)
}

fn span(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 60.0 => format!("{seconds} s"),
        seconds if seconds < 3_600.0 => format!("{} min", seconds / 60.0),
        seconds => format!("{} h", seconds / 3_600.0),
    }
}

fn shares(report: &Simulation, path: &Path) -> Drawn {
    let nodes = &report.nodes;
    let all = nodes
        .iter()
        .flat_map(|node| [node.before, node.after])
        .flatten();
    let most = most(all, 1.25);
    let marks = || vec![mark(1.0, "fair"), mark(1.2, "120 %")];
    let title = "Keys owned by each node, before the first event and after the last";
    if nodes.len() <= 40 {
        return bars(
            path,
            &Bars {
                title,
                unit: "times the fair share by weight",
                rows: nodes.iter().map(|node| node.name.clone()).collect(),
                series: vec![
                    series("before", nodes.iter().map(|node| node.before)),
                    series("after", nodes.iter().map(|node| node.after)),
                ],
                marks: marks(),
                most,
            },
        );
    }
    let sorted = |of: fn(&crate::report::Share) -> Option<f64>| {
        let mut values: Vec<f64> = nodes.iter().filter_map(of).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        values.into_iter().map(Some).collect::<Vec<_>>()
    };
    let (before, after) = (sorted(|node| node.before), sorted(|node| node.after));
    let count = before.len().max(after.len());
    curves(
        path,
        &Curves {
            title,
            across: "nodes, the fullest first",
            unit: "times the fair share by weight",
            steps: (1..=count).map(|at| at.to_string()).collect(),
            series: vec![series("before", before), series("after", after)],
            marks: marks(),
            least: 0.0,
            most: most * 1.05,
        },
    )
}

pub(crate) fn comparison(report: &Comparison, directory: &Path) -> Result<Vec<String>, InputError> {
    let mut sheaf = Sheaf::new(directory)?;
    let rows = || {
        report
            .layouts
            .iter()
            .map(|layout| layout.name.clone())
            .collect()
    };
    let layouts = || report.layouts.iter();
    sheaf.draw("balance.svg", |path| {
        bars(
            path,
            &Bars {
                title: "How full the fullest owner and how empty the emptiest is",
                unit: "times the fair share, by keys",
                rows: rows(),
                series: vec![
                    series(
                        "fullest",
                        layouts().map(|layout| Some(layout.keys.max_over_mean)),
                    ),
                    series(
                        "emptiest",
                        layouts().map(|layout| Some(layout.keys.min_over_mean)),
                    ),
                ],
                marks: vec![mark(1.0, "fair"), mark(1.2, "120 %")],
                most: most(
                    layouts().map(|layout| layout.keys.max_over_mean.min(3.0)),
                    1.5,
                ),
            },
        )
    })?;
    sheaf.draw("movement.svg", |path| {
        let least = report.least_join.max(report.least_leave) * 100.0;
        bars(
            path,
            &Bars {
                title: "Keys that get another owner when one node joins, and when one leaves",
                unit: "percent of all keys",
                rows: rows(),
                series: vec![
                    series(
                        "one joins",
                        layouts().map(|layout| Some(layout.join * 100.0)),
                    ),
                    series(
                        "one leaves, from the middle",
                        layouts().map(|layout| Some(layout.leave * 100.0)),
                    ),
                ],
                marks: vec![mark(least, "least")],
                most: 100.0,
            },
        )
    })?;
    Ok(sheaf.names)
}

pub(crate) fn hashes(report: &HashComparison, directory: &Path) -> Result<Vec<String>, InputError> {
    let mut sheaf = Sheaf::new(directory)?;
    sheaf.draw("hashes.svg", |path| {
        let hashes = || report.hashes.iter();
        let top = most(hashes().map(|hash| hash.ring_worst), 1.5);
        bars(path, &Bars {
            title: "Rings of 160 points a node: the fullest owner, by the hash that draws the points",
            unit: "times the fair share",
            rows: hashes().map(|hash| hash.name.clone()).collect(),
            series: vec![
                series("in the mean of all rings", hashes().map(|hash| Some(hash.ring_max_over_mean))),
                series("in the worst ring", hashes().map(|hash| Some(hash.ring_worst))),
            ],
            marks: vec![mark(1.0, "fair"), mark(1.2, "120 %")],
            most: top,
        })
    })?;
    Ok(sheaf.names)
}

//! What people see, whole: reviewed like code, renewed with `cargo x golden`.

use annulus_simulate::{
    compare::{Contest, compare},
    progress::Silent,
    report::{Extras, simulate},
    scenario::Options,
    table::{Report, write_csv, write_text},
};

fn text(report: &impl Report) -> String {
    let mut out = Vec::new();
    write_text(&mut out, &report.tables()).expect("memory");
    String::from_utf8(out).expect("text")
}

fn options() -> Options {
    Options {
        nodes: Some(6),
        slot_bits: Some(8),
        key_count: Some(2_000),
        value_bytes: Some("64..4096".into()),
        reads_per_second: Some(1_000.0),
        ..Options::default()
    }
}

#[test]
fn a_simulation_as_tables() {
    let extras = Extras {
        sweep: true,
        timing: false,
    };
    let report = simulate(&options().plan().expect("a plan"), extras, &Silent).expect("a report");
    insta::assert_snapshot!("simulation", text(&report));
    let mut csv = Vec::new();
    write_csv(&mut csv, &report).expect("memory");
    let csv = String::from_utf8(csv).expect("text");
    let first: String = csv
        .lines()
        .take(40)
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!("simulation-csv", first);
    let directory = tempfile::tempdir().expect("a directory");
    let charts = report.charts(directory.path()).expect("charts");
    assert_eq!(charts.len(), 5, "{charts:?}");
    for chart in charts {
        let svg = std::fs::read_to_string(&chart).expect("a file");
        assert!(svg.starts_with("<svg") && svg.contains("</svg>"), "{chart}");
        assert!(!svg.contains("NaN"), "{chart}");
    }
}

#[test]
fn a_comparison_as_tables() {
    let plan = options().plan().expect("a plan");
    let contest = Contest {
        nodes: plan.nodes,
        hash: plan.settings.hash,
        seed: 0,
        slot_bits: 8,
        source: plan.source,
        timing: false,
    };
    let report = compare(&contest, &Silent).expect("a report");
    insta::assert_snapshot!("comparison", text(&report));
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(report.charts(directory.path()).expect("charts").len(), 2);
}

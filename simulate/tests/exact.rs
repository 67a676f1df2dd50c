//! Small inputs whose answers can be worked out by hand.

use std::path::PathBuf;

use annulus_simulate::{
    layout::{Layout, Map, Settings},
    progress::Silent,
    report::{Extras, Simulation, simulate},
    scenario::Options,
};

const EXTRAS: Extras = Extras {
    sweep: false,
    timing: false,
};

/// Slots of these keys by the Redis documentation: foo 12182, bar 5061, somekey 11058, and
/// foo{hello} 2515.
const TRACE: &str = "foo,100,10\nbar,200,20\nsomekey,300,30\nfoo{hello},400,40\n";

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("a file");
    (directory, path)
}

fn run(options: &Options) -> Simulation {
    let plan = options.plan().expect("a plan");
    simulate(&plan, EXTRAS, &Silent).expect("a report")
}

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{found}, expected {expected}"
    );
}

/// n1 holds slots 0 to 8191 and n2 the rest: bar and foo{hello} are n1's. A third node takes the
/// first 2,730 slots of n1 (foo{hello} among them) and 8192 to 10922 of n2 (none of the four).
#[test]
fn four_keys_on_redis_slots_come_out_as_by_hand() {
    let (_directory, trace) = file("trace.csv", TRACE);
    let report = run(&Options {
        nodes: Some(2),
        zones: Some(1),
        layout: Some("redis-slots".into()),
        trace: Some(trace),
        events: Some(vec!["join +1".into()]),
        reads_per_second: Some(100.0),
        hit_ratio: Some(0.9),
        ..Options::default()
    });
    let before = &report.balance[0];
    near(before.owned_keys.max_over_mean, 1.0);
    near(before.owned_bytes.max_over_mean, 1.2);
    near(before.owned_bytes.cv, 0.2);
    near(before.requests.max_over_mean, 1.2);
    near(before.requests.min_over_mean, 0.8);

    let join = &report.events[0];
    near(join.keys, 0.25);
    near(join.least, 1.0 / 3.0);
    near(join.over_least.expect("something had to move"), 0.75);
    assert_eq!((join.bytes, join.copied_bytes), (400, 400));
    near(join.copies, 0.25);

    let n1 = &report.losses[0];
    assert_eq!(n1.name, "node n1");
    near(n1.requests, 0.6);
    near(n1.gone_keys, 0.5);
    assert_eq!(n1.gone_bytes, 600);

    // 40 of 100 reads a second were for foo{hello}; 90 % of them hit before. It is asked for 40
    // times a second, so it is back within a second.
    let felt = &report.cache[0];
    near(felt.cold_reads, 0.4);
    near(felt.extra_misses_per_second, 36.0);
    near(felt.factor, 4.6);
    near(felt.later[1].factor, 1.0 + 3.6 * (-40.0_f64).exp());

    assert_eq!(report.hot_key.key, "foo{hello}");
    near(report.hot_key.share, 0.4);
    near(report.hot_key.floor, 0.8);
}

#[test]
fn a_trace_may_be_tabs_a_header_in_any_order_gzip_and_repeat_keys() {
    let (_a, plain) = file("trace.csv", TRACE);
    let tabs = TRACE.replace(',', "\t");
    let (_b, tabs) = file("trace.tsv", &tabs);
    let mut swapped = "requests,extra,key,bytes\r\n".to_owned();
    for line in TRACE.lines() {
        let parts: Vec<_> = line.split(',').collect();
        swapped.push_str(&format!("{},x,{},{}\r\n", parts[2], parts[0], parts[1]));
    }
    let (_c, swapped) = file("swapped.csv", &swapped);
    let gz = plain.with_file_name("trace.gz");
    let out = std::fs::File::create(&gz).expect("a file");
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, TRACE.as_bytes()).expect("written");
    encoder.finish().expect("written");
    // The same key again adds requests, neither key nor bytes.
    let split = TRACE.replace("foo,100,10", "foo,100,4\n\nfoo,100,6");
    let (_d, split) = file("split.csv", &split);

    let report = |trace: &PathBuf| {
        run(&Options {
            nodes: Some(2),
            zones: Some(1),
            layout: Some("redis-slots".into()),
            trace: Some(trace.clone()),
            events: Some(vec!["join +1".into()]),
            ..Options::default()
        })
    };
    let expected = serde_json::to_value(&report(&plain).nodes).expect("json");
    for trace in [&tabs, &swapped, &gz, &split] {
        let found = report(trace);
        let nodes = serde_json::to_value(&found.nodes).expect("json");
        assert_eq!(nodes, expected, "{}", trace.display());
        assert_eq!(found.run.totals.keys, 4);
    }
    let totals = report(&split).run.totals;
    assert_eq!(
        (totals.repeated, totals.empty_lines, totals.requests),
        (1, 1, 100)
    );
}

#[test]
fn a_key_list_is_taken_byte_by_byte() {
    let (_directory, keys) = file("keys", " a\r\na\n\n\u{e9}\n");
    let report = run(&Options {
        nodes: Some(1),
        keys: Some(keys),
        zipf: Some(0.0),
        requests: Some(6),
        value_bytes: Some("7".into()),
        events: Some(vec![]),
        ..Options::default()
    });
    let totals = report.run.totals;
    assert_eq!((totals.keys, totals.bytes, totals.requests), (3, 21, 6));
    assert_eq!(totals.empty_lines, 1);
}

#[test]
fn the_loss_of_a_zone_leaves_two_of_three_copies() {
    let options = Options {
        nodes: Some(6),
        key_count: Some(20_000),
        events: Some(vec![]),
        ..Options::default()
    };
    let report = run(&options);
    for zone in report
        .losses
        .iter()
        .filter(|loss| loss.name.starts_with("zone"))
    {
        near(zone.gone_keys, 0.0);
        near(zone.unwritable_keys, 0.0);
    }
    // In two zones, one of them has two of the three copies of half the keys.
    let report = run(&Options {
        zones: Some(2),
        ..options
    });
    let zones: Vec<_> = report
        .losses
        .iter()
        .filter(|loss| loss.name.starts_with("zone"))
        .collect();
    let unwritable: f64 = zones.iter().map(|zone| zone.unwritable_keys).sum();
    near(unwritable, 1.0);
}

#[test]
fn flapping_with_names_alone_comes_back_to_where_it_was() {
    let report = |layout: &str| {
        run(&Options {
            nodes: Some(8),
            layout: Some(layout.into()),
            rf: Some(1),
            key_count: Some(50_000),
            events: Some(vec!["flap n4 3".into()]),
            ..Options::default()
        })
    };
    for layout in ["tokens", "rendezvous", "ketama"] {
        let report = report(layout);
        // Out and in, three times: six times n4's share.
        let n4 = report
            .nodes
            .iter()
            .find(|node| node.name == "n4")
            .expect("n4");
        near(report.events[0].keys, 6.0 * n4.owned_keys);
        assert_eq!(n4.before, n4.after, "{layout}");
    }
}

#[test]
fn equal_input_and_seed_give_equal_reports() {
    let options = Options {
        key_count: Some(5_000),
        value_bytes: Some("64..4096".into()),
        ..Options::default()
    };
    let json = |options: &Options| serde_json::to_string(&run(options)).expect("json");
    assert_eq!(json(&options), json(&options));
    let other = Options {
        seed: Some(1),
        ..options.clone()
    };
    assert_ne!(json(&options), json(&other));
}

#[test]
fn redis_moves_no_more_slots_than_it_must() {
    let nodes = annulus_simulate::cluster::regular(5, 1, &[1]).expect("fine");
    let settings = Settings {
        layout: Layout::RedisSlots,
        hash: annulus_simulate::hash::Hash::Fnv1a,
        seed: 0,
        rf: 1,
    };
    let map = Map::build(settings, &nodes, None).expect("a map");
    let fewer = nodes[..4].to_vec();
    let smaller = Map::build(settings, &fewer, Some(&map)).expect("a map");
    let (Map::Redis(old), Map::Redis(new)) = (&map, &smaller) else {
        panic!("redis")
    };
    let moved = old.iter().zip(new).filter(|(old, new)| old != new).count();
    // 16,384 = 5 x 3,276 + 4: the first four have 3,277, the fifth 3,276.
    assert_eq!(moved, 3_276);
}

//! Input that makes no sense is refused with its name, its line and what to do.

use std::path::Path;

use annulus_simulate::{
    InputError,
    progress::Silent,
    report::{Extras, simulate},
    scenario::Options,
};

fn refused(options: &Options) -> InputError {
    let extras = Extras {
        sweep: false,
        timing: false,
    };
    let error = match options.plan() {
        Err(error) => error,
        Ok(plan) => simulate(&plan, extras, &Silent).expect_err("it makes no sense"),
    };
    assert!(!error.next().is_empty(), "{error}");
    error
}

fn with_file(bytes: &[u8], options: impl Fn(&Path) -> Options) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("input");
    std::fs::write(&path, bytes).expect("a file");
    let error = refused(&options(&path)).to_string();
    let shown = path.display().to_string();
    error.strip_prefix(&shown).unwrap_or(&error).to_owned()
}

fn trace(text: &str) -> String {
    with_file(text.as_bytes(), |path| Options {
        trace: Some(path.to_owned()),
        ..Options::default()
    })
}

#[test]
fn a_bad_line_of_a_trace_is_named() {
    for (text, expected) in [
        (
            "a,1,1\nb,1\n",
            ", line 2: 2 columns, expected 3: key, bytes, requests",
        ),
        (
            "a,1,1\nb,1,1,1\n",
            ", line 2: 4 columns, expected 3: key, bytes, requests",
        ),
        (
            "a,1,1\nb,-1,1\n",
            ", line 2: bytes is \"-1\", expected a whole number below 2^53",
        ),
        (
            "a,1,1\nb,1,1.5\n",
            ", line 2: requests is \"1.5\", expected a whole number below 2^53",
        ),
        (
            "a,1,1\nb,1,\n",
            ", line 2: requests is \"\", expected a whole number below 2^53",
        ),
        (
            "a,1,1\nb,1,9007199254740992\n",
            ", line 2: requests is \"9007199254740992\", expected a whole number below 2^53",
        ),
        ("a,1,1\n\n,1,1\n", ", line 3: the key is empty"),
        (
            "a,1,1\n\"b,1,1\n",
            ", line 2: a quote is opened and not closed",
        ),
        (
            "key,bytes\na,1\n",
            ", line 1: the header has no column \"requests\"",
        ),
        (
            "a,9007199254740991,1\nb,1,1\n",
            ", line 2: the sum of bytes reaches 2^53",
        ),
        ("", ": no line holds a key"),
        ("key,bytes,requests\n", ": no line holds a key"),
    ] {
        assert_eq!(trace(text), expected, "{text:?}");
    }
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let long = vec![b'x'; 70_000];
    let error = with_file(&long, |path| Options {
        keys: Some(path.to_owned()),
        ..Options::default()
    });
    assert_eq!(error, ", line 1: more than 65536 bytes");
}

#[test]
fn a_torn_gzip_says_how_far_it_got() {
    let mut bytes = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut bytes, flate2::Compression::none());
    for line in 0..10_000 {
        std::io::Write::write_all(&mut encoder, format!("k{line},1,1\n").as_bytes())
            .expect("written");
    }
    encoder.finish().expect("written");
    bytes.truncate(bytes.len() / 2);
    let error = with_file(&bytes, |path| Options {
        trace: Some(path.to_owned()),
        ..Options::default()
    });
    assert!(error.starts_with(", after line "), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = refused(&Options {
        keys: Some("/nonexistent/keys".into()),
        ..Options::default()
    });
    assert!(
        error.to_string().starts_with("/nonexistent/keys: "),
        "{error}"
    );
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let base = || Options {
        key_count: Some(10),
        ..Options::default()
    };
    let text = |options: Options| refused(&options).to_string();
    for (options, expected) in [
        (
            Options {
                nodes: Some(0),
                ..base()
            },
            "--nodes is 0, expected 1 to 10,000",
        ),
        (
            Options {
                nodes: Some(2),
                zones: Some(3),
                ..base()
            },
            "--zones is 3, expected 1 to 2, the number of nodes",
        ),
        (
            Options {
                weights: Some(vec![2_000_000]),
                ..base()
            },
            "weight is 2000000, expected 0 to 1,000,000",
        ),
        (
            Options {
                weights: Some(vec![0]),
                ..base()
            },
            "layout slots: every weight is 0, nobody can own a key",
        ),
        (
            Options {
                slot_bits: Some(21),
                ..base()
            },
            "--slot-bits is 21, expected 1 to 20",
        ),
        (
            Options {
                rf: Some(8),
                ..base()
            },
            "--rf is 8, expected 1 to 7",
        ),
        (
            Options {
                zipf: Some(-1.0),
                ..base()
            },
            "--zipf is -1, expected 0 to 5; 0.8 to 1.2 are common",
        ),
        (
            Options {
                hit_ratio: Some(1.0),
                ..base()
            },
            "--hit-ratio is 1, expected 0 or more and below 1",
        ),
        (
            Options {
                value_bytes: Some("9..1".into()),
                ..base()
            },
            "--value-bytes is 9..1, expected least..most",
        ),
        (
            Options {
                key_count: Some(0),
                ..base()
            },
            "--key-count is 0, expected 1 to 1,000,000,000",
        ),
        (
            Options {
                layout: Some("slot".into()),
                ..base()
            },
            "--layout is \"slot\", expected slots, tokens, rendezvous, jump, ketama, modulo, redis-slots",
        ),
        (
            Options {
                layout: Some("jump".into()),
                rf: Some(3),
                ..base()
            },
            "layout jump: it places one copy of a key, not 3; say --rf 1",
        ),
        (
            Options {
                layout: Some("jump".into()),
                weights: Some(vec![1, 2]),
                ..base()
            },
            "layout jump: its buckets are all alike; give every node one weight",
        ),
    ] {
        assert_eq!(text(options), expected);
    }
}

#[test]
fn events_that_make_no_sense_are_refused() {
    for (event, expected) in [
        ("jion n9", "event \"jion n9\": \"jion\" is no event"),
        ("drain", "event \"drain\": no node is named"),
        ("drain n99", "event \"drain n99\": no node n99 at this time"),
        ("join n1", "event \"join n1\": node n1 is there already"),
        ("join +0", "event \"join +0\": +0 is not +1 to +10000"),
        (
            "join n9 rack=1",
            "event \"join n9 rack=1\": \"rack=1\" is not zone=Z or weight=W",
        ),
        (
            "weight n1",
            "event \"weight n1\": the weight is \"\", expected a whole number",
        ),
        (
            "flap n1 51",
            "event \"flap n1 51\": 51 times, expected 1 to 50",
        ),
        (
            "flap n1 2, drain n2",
            "event \"flap n1 2, drain n2\": a flap stands alone",
        ),
        (
            "drain n1 n2",
            "event \"drain n1 n2\": \"n2\" is one word too many",
        ),
    ] {
        let error = refused(&Options {
            key_count: Some(10),
            events: Some(vec![event.to_owned()]),
            ..Options::default()
        });
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_scenario_file_says_which_line_is_wrong() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("scenario.toml");
    std::fs::write(&path, "nodes = 12\nlayuot = \"slots\"\n").expect("a file");
    let error = Options::read(&path).expect_err("misspelt").to_string();
    assert!(
        error.contains("line 2") && error.contains("layuot"),
        "{error}"
    );
    std::fs::write(&path, "nodes = 5\n[[node]]\nname = \"a\"\n").expect("a file");
    let error = refused(&Options::read(&path).expect("syntax is fine"));
    assert!(error.to_string().contains("said in both ways"), "{error}");
}

#[test]
fn flags_override_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("scenario.toml");
    let text = "key_count = 7\n[[node]]\nname = \"a\"\nzone = \"x\"\nweight = 3\n";
    std::fs::write(&path, text).expect("a file");
    let file = Options::read(&path).expect("a scenario");
    assert_eq!(file.plan().expect("a plan").nodes.len(), 1);
    let flags = Options {
        nodes: Some(4),
        ..Options::default()
    };
    let plan = flags.or(file).plan().expect("a plan");
    assert_eq!(plan.nodes.len(), 4);
    assert!(
        matches!(plan.source, annulus_simulate::keys::Source::Synthetic(keys) if keys.count == 7)
    );
}

//! What is shipped: no bait in the binary, and a README whose commands exist.

use std::{path::Path, process::Command};

/// The name of the variable that would choose a bait, in two parts: this file must not be what
/// puts it into a binary.
const CHOOSER: [&str; 2] = ["ANNULUS", "_BAIT"];

#[test]
fn the_shipped_binary_cannot_be_told_to_misbehave() {
    let binary = std::fs::read(crate::BINARY).expect("cargo built it");
    let chooser = CHOOSER.concat();
    let knows = binary
        .windows(chooser.len())
        .any(|window| window == chooser.as_bytes());
    // Under the feature it must know it, or this test would be looking for the wrong thing.
    assert_eq!(knows, cfg!(feature = "bait"), "{chooser} in the binary");
}

#[test]
fn no_package_has_the_baits_on_by_default() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    for entry in std::fs::read_dir(root)
        .expect("the workspace is readable")
        .flatten()
    {
        let Ok(manifest) = std::fs::read_to_string(entry.path().join("Cargo.toml")) else {
            continue;
        };
        let default = manifest
            .lines()
            .find(|line| line.trim_start().starts_with("default = ["));
        assert!(
            default.is_none_or(|line| !line.contains("bait")),
            "{}: {default:?}",
            entry.path().display()
        );
    }
}

/// Commands of the README's blocks that begin with `annulus`, without their comments.
fn readme_commands() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let mut commands = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = !inside && line.trim_end() == "```sh";
        } else if inside && line.starts_with("annulus ") {
            let command = line.split(" #").next().unwrap_or(line).trim();
            commands.push(command.to_owned());
        }
    }
    commands
}

fn help(words: &[&str]) -> String {
    let ran = Command::new(crate::BINARY)
        .args(words)
        .arg("--help")
        .output()
        .expect("it starts");
    assert!(
        ran.status.success(),
        "annulus {} --help: {ran:?}",
        words.join(" ")
    );
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn every_command_and_option_of_the_readme_exists() {
    let commands = readme_commands();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        // One or two words name the command; what follows are values and options.
        let two = ["cluster", "ring", "node", "kv", "plan", "explain", "zone"].contains(&words[0]);
        let help = help(&words[..if two { 2 } else { 1 }]);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(
                help.contains(option),
                "{command}: no {option} in its help:\n{help}"
            );
        }
    }
}

#[test]
fn the_table_of_commands_is_whole() {
    let readme = include_str!("../../README.md");
    let commands = Command::new(crate::BINARY)
        .arg("--help")
        .output()
        .expect("it starts")
        .stdout;
    let commands = String::from_utf8_lossy(&commands).into_owned();
    let listed = commands
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1);
    for command in listed.take_while(|line| !line.trim().is_empty()) {
        let Some(name) = command
            .split_whitespace()
            .next()
            .filter(|_| !command.starts_with("   "))
        else {
            continue;
        };
        assert!(
            name == "help" || readme.contains(&format!("`annulus {name}")),
            "{name} is not in the README"
        );
    }
}

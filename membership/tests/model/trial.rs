//! The model tried itself: it replays exactly, sees a planted violation, and makes it short.

use annulus_membership::{ChangePhase, Command, RingCommand};
use annulus_ring::Step;

use super::{
    episode::{play, replay},
    promises::Seen,
    shrink::shrink,
    verb,
};

#[test]
fn a_seed_gives_the_same_run_each_time_and_by_its_text() {
    for number in 0..4 {
        let (one, two) = (play(7, number, None), play(7, number, None));
        let text = |moves: &[verb::Move]| -> Vec<String> {
            moves.iter().map(ToString::to_string).collect()
        };
        assert_eq!(text(&one.moves), text(&two.moves));
        assert_eq!(one.violation, None);
        let moves = verb::parse(&text(&one.moves).join("\n")).unwrap();
        let (first, _) = replay(&one.moves, None);
        let (again, _) = replay(&moves, None);
        assert_eq!(first.state, again.state, "by its text it is another run");
        assert!(first.state.rings.len() == 1 && first.coverage.accepted > 20);
    }
    let (one, other) = (play(7, 0, None), play(8, 0, None));
    let same = one.moves.len() == other.moves.len()
        && one
            .moves
            .iter()
            .zip(&other.moves)
            .all(|(a, b)| a.to_string() == b.to_string());
    assert!(!same, "another seed gives the same run");
}

/// "No drain is ever withdrawn from the switch": false, and it takes a dozen moves to show it.
fn no_drain_flips_back(seen: &Seen<'_>) -> Result<(), String> {
    let Some((_, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(RingCommand::Abort { change }) = seen.done() else {
        return Ok(());
    };
    let flips = after
        .transition
        .as_ref()
        .is_some_and(|one| one.step == Step::FlippingBack);
    let record = &after.changes[change];
    if flips && record.change.kind() == "drain" && matches!(record.phase, ChangePhase::Running(_)) {
        return Err(format!("{:?} flips back", record.change));
    }
    Ok(())
}

#[test]
fn a_planted_violation_is_found_and_shrunk_to_what_it_needs() {
    let planted = Some(no_drain_flips_back as fn(&Seen<'_>) -> Result<(), String>);
    let (length, short) = (0..200)
        .find_map(|number| {
            let run = play(3, number, planted);
            let violation = run.violation?;
            assert_eq!(violation.promise, "PLANTED", "{violation}");
            Some((run.moves.len(), shrink(run.moves, violation, planted)))
        })
        .expect("no run of 200 flips a drain back");
    let scenario = short.scenario();
    assert!(scenario.contains("flips back"), "{scenario}");
    // ring, agents, founding, the drain, its steps and waves, the abort.
    let count = short.moves.len();
    assert!(
        count < 60 && count < length,
        "{count} of {length} moves:\n{scenario}"
    );
    // As text it breaks the same promise, and without any one of its moves it breaks none.
    let moves = verb::parse(&scenario).unwrap();
    let (world, violation) = replay(&moves, planted);
    assert_eq!(violation, Some(short.violation));
    assert_eq!(
        world.coverage.moves as usize, count,
        "it breaks at its last move"
    );
    for left_out in 0..count {
        let mut rest = moves.clone();
        let without = rest.remove(left_out);
        let (_, violation) = replay(&rest, planted);
        assert_eq!(violation, None, "{without} is not needed:\n{scenario}");
    }
}

/// Every line of a run says what the log holds too: an entry's serde form is the entry.
#[test]
fn entries_of_a_run_survive_their_serde_form() {
    fn same_after_serde(seen: &Seen<'_>) -> Result<(), String> {
        let bytes = serde_json::to_vec(seen.entry).map_err(|error| error.to_string())?;
        let back: annulus_membership::Entry =
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let is_tick = matches!(back.command, Command::Tick { .. });
        if back == *seen.entry || is_tick && back.command == seen.entry.command {
            Ok(())
        } else {
            Err(format!("{back:?}"))
        }
    }
    for number in 0..3 {
        let run = play(5, number, Some(same_after_serde));
        assert_eq!(run.violation, None);
        assert!(run.coverage.entries > 20);
    }
}

//! A thread takes its turn, and other threads wait.

use super::*;

#[test]
fn a_thread_has_one_turn_and_others_wait() {
    let turns = Turns::default();
    let first = turns.wait().unwrap();
    assert!(turns.wait().is_err());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| turns.wait().is_ok());
        drop(first);
        assert!(other.join().unwrap());
    });
    assert!(turns.wait().is_ok());
}

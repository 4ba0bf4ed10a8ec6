//! The callback at the end of each epoch, and its decisions.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use unpadded::checkpoint::Checkpoint;

use super::*;

#[test]
fn it_is_called_once_an_epoch_after_the_save_and_may_stop_the_training() {
    let file = path("on-epoch");
    let mut whole = trainer();
    fit(&mut whole, Until::Epochs(4));
    let expected = bytes(&mut whole);
    let calls = Rc::new(RefCell::new(Vec::new()));
    let (seen, saved) = (calls.clone(), file.clone());
    let mut stopped = trainer().checkpoint(&file).on_epoch(move |epoch| {
        // The file includes this epoch already, and is at its end.
        let saved = Checkpoint::load(&saved).unwrap();
        assert_eq!(
            (saved.position.epoch, saved.position.batch, saved.position.step),
            (epoch.epoch, 0, epoch.step)
        );
        assert_eq!(saved.history.last(), Some(epoch));
        seen.borrow_mut().push((epoch.epoch, epoch.step));
        if epoch.epoch == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = fit(&mut stopped, Until::Epochs(4));
    assert_eq!((report.ended, report.epochs, report.steps), (StopReason::Stopped, 2, 20));
    assert_eq!(*calls.borrow(), [(1, 10), (2, 20)]);
    // Training continues after that epoch, which is not reported again, to the same result as without the stop.
    let report = fit(&mut stopped, Until::Epochs(4));
    assert_eq!((report.ended, report.epochs, report.steps), (StopReason::Done, 4, 40));
    assert_eq!(*calls.borrow(), [(1, 10), (2, 20), (3, 30), (4, 40)]);
    assert_eq!(report.history.len(), 4);
    assert!(bytes(&mut stopped) == expected);
    // Nothing is left to train, and no epoch ends.
    assert_eq!(fit(&mut stopped, Until::Epochs(4)).ended, StopReason::Done);
    assert_eq!(calls.borrow().len(), 4);
    std::fs::remove_file(file).unwrap();
}

//! The checks of lent regions.

use super::*;

fn region(buffer: usize, row: usize, rows: usize, column: usize, width: usize, stride: usize) -> Region {
    Region { buffer, row, column, extent: Extent2 { rows, width, stride }, step: 0 }
}

fn arena() -> Arena {
    let mut arena = Arena::new();
    arena.add::<f32>();
    assert!(arena.try_reserve(0, 40));
    arena
}

#[test]
fn a_step_is_written_while_the_one_before_is_read() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    let mut lane = arena.lane();
    let mut operands = lane.operands(&mut room, &[region(0, 0, 2, 0, 4, 4)], &[region(0, 2, 2, 0, 4, 4)]);
    let (before, mut now) = (operands.read::<f32>(0).unwrap(), operands.write::<f32>(0).unwrap());
    now.fill(2.0);
    assert_eq!(before.row(1), [0.0; 4]);
    assert!(operands.read::<f64>(0).is_none());
}

/// Regions are written and read before and after the buffer moves; Miri checks that the addresses are valid for writing.
#[test]
fn what_was_written_is_lent_again() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    let mut lane = arena.lane();
    let written = lane.operands(&mut room, &[], &[region(0, 0, 2, 0, 4, 4)]).write::<f32>(0);
    written.unwrap().fill(1.0);
    let mut operands = lane.operands(&mut room, &[region(0, 0, 2, 0, 4, 4)], &[region(0, 2, 2, 0, 4, 4)]);
    let (before, mut now) = (operands.read::<f32>(0).unwrap(), operands.write::<f32>(0).unwrap());
    now.row(0).copy_from_slice(before.row(1));
    assert_eq!(before.row(0), [1.0; 4]);
    now.row(1).fill(before.row(0)[3] + 1.0);
    assert!(lane.try_reserve(0, 1000));
    assert!(lane.try_reserve(0, 5000));
    assert!(!lane.try_reserve(0, usize::MAX / 8));
    let last =
        lane.operands(&mut room, &[region(0, 1, 1, 0, 4, 4)], &[region(0, 1249, 1, 0, 4, 4)]).write::<f32>(0);
    last.unwrap().fill(3.0);
    let mut other = arena.lane();
    let operands = other.operands(&mut room, &[region(0, 0, 1250, 0, 4, 4)], &[]);
    let rows = operands.read::<f32>(0).unwrap();
    let firsts = [0, 1, 2, 3, 4, 1249].map(|row| rows.row(row)[0]);
    assert_eq!(firsts, [1.0, 1.0, 1.0, 2.0, 0.0, 3.0]);
}

/// Two threads write disjoint rows of one buffer. Both threads read one common region, and each thread also reads rows
/// that the other thread does not read.
#[test]
fn halves_of_operands_are_written_together() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    let (common, own) = ([1.0f32, 2.0], [10.0f32, 20.0, 30.0]);
    {
        let mut lent = Operands::lent(&mut room);
        lent.read(View::new(&common, 1, 2));
        lent.read(View::new(&own, 3, 1));
        let mut lane = arena.lane();
        let mut lane_room = OperandRoom::default();
        let mut rows = lane.operands(&mut lane_room, &[], &[region(0, 0, 3, 1, 2, 4)]);
        lent.write(rows.write::<f32>(0).unwrap());
        let mut operands = lent.finish();
        let mut rooms = (OperandRoom::default(), OperandRoom::default());
        let split_at = |i: usize| (i > 0).then_some(2);
        let (left, right) = operands.split(split_at, (&mut rooms.0, &mut rooms.1));
        let run = |mut operands: Operands<'_>| {
            let (common, own) = (operands.read::<f32>(0).unwrap(), operands.read::<f32>(1).unwrap());
            let mut rows = operands.write::<f32>(0).unwrap();
            for (row, own) in rows.iter_mut().zip(own.iter()) {
                row.copy_from_slice(&[common.row(0)[0] + own[0], common.row(0)[1] + own[0]]);
            }
        };
        join(|| run(left), || run(right));
    }
    let mut lane = arena.lane();
    let operands = lane.operands(&mut room, &[region(0, 0, 4, 0, 4, 4)], &[]);
    let all = operands.read::<f32>(0).unwrap().contiguous().unwrap().to_vec();
    let expected = [0.0, 11.0, 12.0, 0.0, 0.0, 21.0, 22.0, 0.0, 0.0, 31.0, 32.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(all, expected);
}

#[test]
#[should_panic(expected = "overlaps")]
fn overlapping_regions_are_refused() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    arena.lane().operands(&mut room, &[region(0, 0, 3, 1, 2, 4)], &[region(0, 2, 2, 2, 2, 4)]);
}

#[test]
fn columns_beside_each_other_do_not_overlap() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    arena.lane().operands(&mut room, &[region(0, 0, 3, 0, 2, 4)], &[region(0, 0, 3, 2, 2, 4)]);
}

#[test]
#[should_panic(expected = "beyond 48 elements")]
fn a_region_outside_its_buffer_is_refused() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    arena.lane().operands(&mut room, &[region(0, 12, 1, 0, 4, 4)], &[]);
}

#[test]
fn lanes_write_their_own_rows() {
    let mut arena = arena();
    let starts = [0, 3, 5];
    let shares = [Share::Stepped { base: 1, stride: 2 }];
    let run = |mut lane: Lane<'_>, mark: &mut f32| {
        let mut room = OperandRoom::default();
        let part = lane.part().unwrap();
        for step in 0..2 {
            let alive = starts[step + 1] - starts[step];
            let (from, to) = (part.from, part.to.min(alive));
            let mut r = region(0, 1 + starts[step] + from, to.saturating_sub(from), 0, 2, 2);
            r.step = step;
            lane.operands(&mut room, &[], &[r]).write::<f32>(0).unwrap().fill(*mark);
        }
        Ok::<(), ()>(())
    };
    let steps = StepRows { starts: &starts, shares: &shares, bounds: &[] };
    arena.lane().split(&[0, 1, 3], steps, &mut [1.0, 2.0], &run).unwrap();
    let mut room = OperandRoom::default();
    let mut lane = arena.lane();
    let operands = lane.operands(&mut room, &[region(0, 0, 7, 0, 2, 2)], &[]);
    let firsts: Vec<f32> = operands.read::<f32>(0).unwrap().iter().map(|r| r[0]).collect();
    assert_eq!(firsts, [0.0, 1.0, 2.0, 2.0, 1.0, 2.0, 0.0]);
}

#[test]
#[should_panic(expected = "outside sequences 1..3")]
fn a_lane_does_not_reach_another_lanes_rows() {
    let mut arena = arena();
    let run = |mut lane: Lane<'_>, (): &mut ()| {
        if lane.part().unwrap().from == 1 {
            lane.operands(&mut OperandRoom::default(), &[], &[region(0, 0, 2, 0, 2, 2)]);
        }
        Ok::<(), ()>(())
    };
    let shares = [Share::Sequence { stride: 2 }];
    let steps = StepRows { starts: &[0, 3], shares: &shares, bounds: &[] };
    arena.lane().split(&[0, 1, 3], steps, &mut [(), ()], &run).unwrap();
}

/// Returns the first number of each row after two lanes wrote the runs of their sequences. The first sequence has a run
/// of two rows at both steps; the second sequence has a run of one row at the first step. If `from_first` is set, the
/// second lane writes the rows of the first lane, and the function returns the panic.
fn of_runs(from_first: bool) -> Result<Vec<f32>, Box<dyn std::any::Any + Send>> {
    std::panic::catch_unwind(|| {
        let mut arena = arena();
        let shares = [Share::SteppedRuns { base: 1, starts: 3, first: 0, stride: 2 }];
        // The second sequence has no second step.
        let steps = StepRows { starts: &[0, 2, 3], shares: &shares, bounds: &[0, 2, 3, 0, 3, 5] };
        let run = |mut lane: Lane<'_>, mark: &mut f32| {
            let mut room = OperandRoom::default();
            let first = lane.part().unwrap().from == 0 || from_first;
            let runs = if first { &[(0, 1, 2), (1, 4, 2)][..] } else { &[(0, 3, 1)] };
            for &(step, row, rows) in runs {
                let region = Region { step, ..region(0, row, rows, 0, 2, 2) };
                lane.operands(&mut room, &[], &[region]).write::<f32>(0).unwrap().fill(*mark);
            }
            Ok::<(), ()>(())
        };
        arena.lane().split(&[0, 1, 2], steps, &mut [1.0, 2.0], &run).unwrap();
        let mut room = OperandRoom::default();
        let mut lane = arena.lane();
        let operands = lane.operands(&mut room, &[region(0, 0, 7, 0, 2, 2)], &[]);
        operands.read::<f32>(0).unwrap().iter().map(|r| r[0]).collect()
    })
}

#[test]
fn lanes_write_their_own_runs_of_rows() {
    assert_eq!(of_runs(false).unwrap(), [0.0, 1.0, 1.0, 2.0, 1.0, 1.0, 0.0]);
    assert!(of_runs(true).is_err(), "the second lane wrote the rows of the first");
}

#[test]
#[should_panic(expected = "of the runs decrease")]
fn runs_that_meet_are_refused() {
    let shares = [Share::Runs { first: 0, stride: 2 }];
    let run = |_: Lane<'_>, (): &mut ()| Ok::<(), ()>(());
    let steps = StepRows { starts: &[0, 2], shares: &shares, bounds: &[0, 3, 2] };
    arena().lane().split(&[0, 1, 2], steps, &mut [(), ()], &run).unwrap();
}

#[test]
fn sizes_beyond_counting_are_refused() {
    for (row, rows, column) in [(0, 1 << 62, 0), (1 << 62, 1, 0), (0, 1, usize::MAX), (usize::MAX, 2, 0)] {
        let huge = region(0, row, rows, column, 4, 4);
        let lend = || {
            arena().lane().operands(&mut OperandRoom::default(), &[huge], &[]);
        };
        assert!(std::panic::catch_unwind(lend).is_err(), "{huge:?}");
    }
}

#[test]
#[should_panic(expected = "the start rows of the steps or of the runs decrease")]
fn steps_that_share_rows_are_refused() {
    let shares = [Share::Stepped { base: 0, stride: 2 }];
    let run = |_: Lane<'_>, (): &mut ()| Ok::<(), ()>(());
    let steps = StepRows { starts: &[0, 10, 2, 20], shares: &shares, bounds: &[] };
    arena().lane().split(&[0, 2, 4], steps, &mut [(), ()], &run).unwrap();
}

/// Clones read common buffers in the same memory, on any thread; a clone that calls `own` before it writes has its own
/// copy from then on.
#[test]
fn clones_read_common_buffers() {
    let mut first = arena();
    let room = || OperandRoom::default();
    let fill = |arena: &mut Arena, number: f32| {
        let mut room = room();
        let mut lane = arena.lane();
        let mut operands = lane.operands(&mut room, &[], &[region(0, 0, 10, 0, 4, 4)]);
        operands.write::<f32>(0).unwrap().fill(number);
    };
    let read = |arena: &mut Arena| {
        let mut room = room();
        let mut lane = arena.lane();
        let numbers = lane.operands(&mut room, &[region(0, 0, 10, 0, 4, 4)], &[]).read::<f32>(0).unwrap();
        (numbers.row(9)[3], numbers.as_ptr() as usize)
    };
    fill(&mut first, 1.0);
    let (_, apart) = read(&mut first.clone());
    assert_ne!(apart, read(&mut first).1);
    first.make_common();
    let mut second = first.clone();
    let (of_first, of_second) = std::thread::scope(|threads| {
        let other = threads.spawn(|| read(&mut second));
        (read(&mut first), other.join().unwrap())
    });
    assert_eq!(of_first, of_second);
    assert_eq!(of_first.0, 1.0);
    second.own(0);
    fill(&mut second, 2.0);
    assert_eq!((read(&mut first), read(&mut second).0), (of_first, 2.0));
    // The last arena owns the memory without a copy.
    drop(second);
    first.own(0);
    assert_eq!(read(&mut first), of_first);
}

#[test]
#[should_panic(expected = "of a common buffer is written")]
fn a_common_buffer_is_not_written() {
    let (mut arena, mut room) = (arena(), OperandRoom::default());
    arena.make_common();
    arena.lane().operands(&mut room, &[], &[region(0, 0, 2, 0, 4, 4)]);
}

/// `own` gives a buffer a new version; `exchange` moves the version together with the buffer.
#[test]
fn versions_tell_values_apart() {
    let (mut first, mut other) = (arena(), arena());
    let version = |arena: &mut Arena| arena.lane().version(0);
    assert_eq!(version(&mut first), 0);
    first.own(0);
    let one = version(&mut first);
    assert_ne!(one, 0);
    assert_eq!(version(&mut first.clone()), one);
    other.own(0);
    assert_ne!(version(&mut other), one);
    first.own(0);
    let two = version(&mut first);
    assert_ne!(two, one);
    first.exchange(0, &mut other, 0);
    assert_eq!(version(&mut other), two);
}

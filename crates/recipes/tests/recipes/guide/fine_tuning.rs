//! The programs of the page `crates/recipes/src/guide/fine_tuning.md`, whole: the page shows the lines that teach.

#[test]
fn gradual_unfreezing_and_smaller_rates_below() -> unpadded::Result<()> {
    use unpadded::data::{Limits, Vocabulary};
    let old = Vocabulary::of("a fine film".split(' '), &Limits::default())?;
    let limits = Limits::default().base(old.clone());
    let new = Vocabulary::of("a dull film".split(' '), &limits)?;
    assert_eq!((new.id("fine"), new.id("dull")), (old.id("fine"), Some(old.len() as i64)));
    assert_eq!(new.count(new.lookup("film")?), 2);

    use unpadded::optimizer::{Adam, Group};
    let vectors = Group::matching(|name| name.starts_with("words."));
    let adam = Adam::new(1e-3).group(vectors.after(500).rate(0.4)); // held in the first 500 steps
    let _ = adam;
    Ok(())
}

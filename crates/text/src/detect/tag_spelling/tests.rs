//! Tests of spellings, plain tags, broken schemes and the repair of tags.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn of(sentences: &[&str]) -> Result<Tagging> {
    let all: Vec<Vec<String>> = sentences.iter().map(|text| words(text)).collect();
    Tagging::detect(all.iter().map(Vec::as_slice))
}

#[test]
fn the_spelling_is_that_of_all_tags() {
    for (sentences, name, standard) in [
        (&["B-A I-A O", "B-B"][..], "IOB2", "B-A I-A O"),
        (&["O O"], "IOB2", "O O"),
        (&["O I-A I-A"], "IOB1", "O I-A I-A"),
        (&["I-A E-A O", "E-A"], "IOE2", "I-A E-A O"),
        (&["B I O", "O B B I"], "IOB2, spelled `B`, `I`", "B-chunk I-chunk O"),
        (&["O I I", "I"], "IOB1, spelled `B`, `I`", "O I-chunk I-chunk"),
        (&["B_A_B I_A_B O"], "IOB2, spelled `B_kind`, `I_kind`", "B-A_B I-A_B O"),
        (&["A-B A-I O"], "IOB2, spelled `kind-B`, `kind-I`", "B-A I-A O"),
        (&["A_B A_I O", "x-y_B"], "IOB2, spelled `kind_B`, `kind_I`", "B-A I-A O"),
        (&["b-a i-a o"], "IOB2, spelled `b-kind`, `i-kind`", "B-a I-a O"),
        (&["b-a i-a O"], "IOB2, spelled `b-kind`, `i-kind`", "B-a I-a O"),
        (&["B-A I-A L-A O", "U-B"], "IOBES, spelled `B-kind`, `I-kind`, `L-kind`, `U-kind`", "B-A I-A E-A O"),
        (&["B M E S", "B E"], "IOBES, spelled `B`, `M`, `E`, `S`", "B-chunk I-chunk E-chunk S-chunk"),
        (
            &["B-A M-A E-A O W-A"],
            "IOBES, spelled `B-kind`, `M-kind`, `E-kind`, `W-kind`",
            "B-A I-A E-A O S-A",
        ),
        (&["B/A I/A O"], "IOB2, spelled `B/kind`, `I/kind`", "B-A I-A O"),
        (&["A:B A:I O"], "IOB2, spelled `kind:B`, `kind:I`", "B-A I-A O"),
        (&["BPER IPER O", "BLOC"], "IOB2, spelled `Bkind`, `Ikind`", "B-PER I-PER O"),
        (&["B- I- O"], "IOB2, spelled `Bkind`, `Ikind`", "B-- I-- O"),
        (&["<B-A> <I-A> <O>"], "IOB2, spelled `<B-kind>`, `<I-kind>`, `<O>`", "B-A I-A O"),
        (&["[B-A] [I-A] O"], "IOB2, spelled `[B-kind]`, `[I-kind]`", "B-A I-A O"),
        (&["B-A I-A _"], "IOB2, spelled `B-kind`, `I-kind`, `_`", "B-A I-A O"),
        (&["B I 0", "B I"], "IOB2, spelled `B`, `I`, `0`", "B-chunk I-chunk O"),
        (&["U-A O U-A"], "IOBES, spelled `B-kind`, `I-kind`, `L-kind`, `U-kind`", "S-A O S-A"),
        (&["A-U O"], "IOBES, spelled `kind-B`, `kind-I`, `kind-L`, `kind-U`", "S-A O"),
        (&["B-A L-A O", "O"], "IOBES, spelled `B-kind`, `I-kind`, `L-kind`, `U-kind`", "B-A E-A O"),
        (&["B-A E-A U-A O"], "IOBES, spelled `B-kind`, `I-kind`, `E-kind`, `U-kind`", "B-A E-A S-A O"),
    ] {
        let found = of(sentences).unwrap();
        assert_eq!(found.to_string(), name, "{sentences:?}");
        assert_eq!(Tagging::of_note(&found.to_note()), Some(found.clone()), "{sentences:?}");
        let tags = words(sentences[0]);
        let read = found.sentence(&tags).unwrap();
        assert_eq!(read, words(standard), "{sentences:?}");
        let again: Vec<String> = read.iter().map(|tag| found.spelling.spelled(tag)).collect();
        assert_eq!(again, tags, "{sentences:?}");
        let known = Vocabulary::labels(&tags).unwrap();
        let renamed = found.standard(&known).unwrap();
        let same = |(tag, standard): (&String, &String)| known.id(tag) == renamed.id(standard);
        assert!(tags.iter().zip(&read).all(same), "{sentences:?}");
    }
}

#[test]
fn plain_tags_are_plain() {
    for sentences in [
        &["DET NOUN I O B", "PRON"][..],
        &["S S", "S"],
        &["U-A U-B"],
        &["N-1 -RRB- :", "B- V-X"],
        &["B_A I_A NOUN"],
        // No scheme allows these sequences of letters.
        &["S B S", "B B"],
    ] {
        assert_eq!(of(sentences).unwrap().scheme, TagScheme::Plain, "{sentences:?}");
    }
    assert!(
        of(&["S B S", "B B"])
            .unwrap()
            .note()
            .is_some_and(|why| why.contains("1 of 2 sentences break this scheme"))
    );
    let few = "V ".repeat(39) + "S-Bahn";
    let found = of(&[&few]).unwrap();
    assert_eq!(found.scheme, TagScheme::Plain);
    assert!(found.note().is_some_and(|why| why.starts_with("`S-Bahn` looks like")));
}

#[test]
fn the_sentence_that_breaks_the_scheme_of_the_others_is_named() {
    let shown = |sentences: &[&str]| format!("{:#}", of(sentences).unwrap_err());
    // For mostly plain tags, the error is about the tag that looks like a scheme.
    let error = shown(&["N V", "N V-2", "B-A O", "V V"]);
    assert!(
        error.starts_with("tags of sentence 3: expected plain tags, as 3 of 4 sentences have"),
        "{error}"
    );
    assert!(error.contains("got `B-A`") && !error.contains("repair_tags"), "{error}");
    let error = shown(&["B-A I-A", "O", "N B-A", "B-A"]);
    assert!(
        error.starts_with("tags of sentence 3: expected a tag of IOB2, which 3 of 4 sentences keep"),
        "{error}"
    );
    assert!(error.contains("got `N`"), "{error}");
    let error = shown(&["B-A I-A", "O I-A", "I-B", "B-A"]);
    assert!(error.contains("sentence 2") && error.contains("got `I-A` behind `O`"), "{error}");
    assert!(error.contains("2 sentences do not fit; `repair_tags`"), "{error}");
    let error = shown(&["S-A O", "B-A E-A", "O B-A", "S-B"]);
    assert!(error.contains("a tag of IOBES") && error.contains("got `B-A` at the end"), "{error}");
    let error = shown(&["B_A I_A", "I_A O", "B_A"]);
    assert!(error.contains("got `I_A` at the start of the sentence"), "{error}");
}

#[test]
fn a_scheme_that_is_set_rules() {
    let found = |tags: &[&str], scheme| {
        let all: Vec<Vec<String>> = tags.iter().map(|text| words(text)).collect();
        let all: Vec<&[String]> = all.iter().map(Vec::as_slice).collect();
        let all = in_memory(&all);
        TagSurvey::of(&*all, Some(scheme))?.whole(&*all, &|at, word| Ok(format!("{at}:{word}")))
    };
    let name = |tags: &[&str], scheme| found(tags, scheme).unwrap().to_string();
    assert_eq!(name(&["B I S", "B I S", "I O"], TagScheme::Plain), "plain");
    assert_eq!(name(&["N V B-A", "V"], TagScheme::Plain), "plain");
    assert_eq!(name(&["I-A O"], TagScheme::Iob1), "IOB1");
    assert_eq!(name(&["S B E S", "O"], TagScheme::Iobes), "IOBES, spelled `B`, `I`, `E`, `S`");
    let shown = |tags: &[&str], scheme| format!("{:#}", found(tags, scheme).unwrap_err());
    let error = shown(&["B-A I-A", "B-B O B-A"], TagScheme::Iob1);
    assert!(error.starts_with("0:0: expected a tag of IOB1, which 0 of 2 sentences keep"), "{error}");
    assert!(error.contains("got `B-A` at the start") && error.contains("`repair_tags`"), "{error}");
    let error = shown(&["N V", "O"], TagScheme::Iob2);
    assert!(error.starts_with("0:0: expected a tag of IOB2, which 1 of 2"), "{error}");
    assert!(error.contains("got `N`") && !error.contains("repair_tags"), "{error}");
    for (name, scheme) in [("plain", TagScheme::Plain), ("BIO", TagScheme::Iob2), ("bilou", TagScheme::Iobes)]
    {
        assert_eq!(TagScheme::from_name(name).unwrap(), scheme);
    }
    let error = TagScheme::from_name("iob3").unwrap_err().to_string();
    assert!(error.contains("expected one of `iob1`, `iob2`") && error.contains("got `iob3`"), "{error}");
}

#[test]
fn repair_is_offered_where_it_helps() {
    let shown = |sentences: &[&str]| format!("{:#}", of(sentences).unwrap_err());
    assert!(shown(&["B-A I-A", "O I-A", "B-A"]).contains("`repair_tags`"));
    // The message does not advise a repair if a tag has another spelling, or if the first line may be a header.
    let error = shown(&["B-A I-A", "O N I-A", "B-A"]);
    assert!(
        !error.contains("repair_tags") && error.contains("`scheme` (`data.scheme` in a config)"),
        "{error}"
    );
    let error = shown(&["etiquette", "B-A I-A", "B-A"]);
    assert!(
        error.contains("`header` (`data.header` in a config)") && !error.contains("repair_tags"),
        "{error}"
    );
}

#[test]
fn tags_are_repaired_as_conlleval_reads_them() {
    let tagging = |scheme| Tagging::new(scheme, TagSpelling::STANDARD);
    for (scheme, tags, expected) in [
        (TagScheme::Iob2, "O I-A I-A I-B", Some("O B-A I-A B-B")),
        (TagScheme::Iob2, "O B-A I-A B-A", None),
        (TagScheme::Iob2, "O B-A NOUN", None),
        (TagScheme::Iobes, "B-A O I-A E-A", Some("S-A O B-A E-A")),
        (TagScheme::Iob1, "B-A I-A", Some("I-A I-A")),
        (TagScheme::Ioe2, "I-A O", Some("E-A O")),
    ] {
        let found = tagging(scheme).repaired(&words(tags));
        assert_eq!(found, expected.map(words), "{tags}");
        assert_eq!(found.and_then(|tags| tagging(scheme).repaired(&tags)), None, "{tags}");
    }
    let spelled = of(&["B_A I_A O"]).unwrap();
    assert_eq!(spelled.repaired(&words("O I_A")), Some(words("O B_A")));
}

#[test]
fn one_typo_is_no_second_spelling() {
    let rest = ["B-NP I-NP O B-VP", "B-NP O", "B-VP I-VP", "O B-NP"];
    for typo in ["BNP", "B-", "B_NP", "IN", "o", "B\u{2013}NP"] {
        let typed = format!("B-NP I-NP {typo}");
        let mut sentences = rest.to_vec();
        sentences.push(&typed);
        let error = format!("{:#}", of(&sentences).unwrap_err());
        let expected =
            "tags of sentence 5: expected a tag of IOB2, which 4 of 5 sentences keep, spelled `B-kind`";
        assert!(error.starts_with(expected) && error.contains(&format!("got `{typo}`")), "{error}");
        let all: Vec<Vec<String>> = sentences.iter().map(|text| words(text)).collect();
        let all: Vec<&[String]> = all.iter().map(Vec::as_slice).collect();
        let all = in_memory(&all);
        let set =
            TagSurvey::of(&*all, Some(TagScheme::Iob2)).unwrap().whole(&*all, &|at, _| Ok(at.to_string()));
        assert!(set.unwrap_err().to_string().contains(&format!("`{typo}`")), "{typo}");
    }
}

#[test]
fn tags_of_another_scheme_are_translated() {
    let translated = |known: &[&str], is_set, sentences: &[&str]| {
        let all: Vec<Vec<String>> = sentences.iter().map(|text| words(text)).collect();
        let all: Vec<&[String]> = all.iter().map(Vec::as_slice).collect();
        let (known, location) = (of(known).unwrap(), |at, word| Ok(format!("{at}:{word}")));
        let found = Tagging::translated(&known, is_set, &*in_memory(&all), &location)?;
        Ok::<_, unpadded::Error>(found.map(|own| {
            let written = all.iter().map(|tags| known.written(&own, tags).unwrap().join(" "));
            (own.to_string(), written.collect())
        }))
    };
    let of = |name: &str, all: &[&str]| {
        Some((name.to_owned(), all.iter().map(|tags| (*tags).to_owned()).collect::<Vec<_>>()))
    };
    let begun = &["B-A I-A O"][..];
    assert_eq!(translated(begun, false, &["O B-C", "B-A I-A"]).unwrap(), None);
    let found = translated(begun, false, &["S-A B-B E-B O"]).unwrap();
    assert_eq!(found, of("IOBES", &["B-A B-B I-B O"]));
    let found = translated(&["B_A L_A U_A"], false, &["I-A I-A B-A", "O I-B"]).unwrap();
    assert_eq!(found, of("IOB1", &["B_A L_A U_A", "O U_B"]));
    // In the first case, the tags keep neither the known scheme nor another scheme. In the second case, the user has
    // set the scheme. In the third case, the known scheme has no kinds; in the last case, the known tags are plain.
    let shown = |known, is_set, sentences| format!("{:#}", translated(known, is_set, sentences).unwrap_err());
    let error = shown(begun, false, &["B-A O", "O I-A"]);
    assert!(error.starts_with("1:1: expected a tag of IOB2, which 1 of 2 sentences keep"), "{error}");
    let error = shown(begun, true, &["O", "S-A O"]);
    assert!(error.contains("got `S-A`") && error.contains("set this scheme"), "{error}");
    let error = shown(&["B I O"], false, &["S-A O"]);
    assert!(error.contains("got `S-A`") && error.contains("the training has this scheme"), "{error}");
    assert_eq!(translated(&["N V"], false, &["S-A O"]).unwrap(), None);
}

#!/usr/bin/env python3
"""Writes datasets/reviews/{train,dev}.tsv: short synthetic opinions, `text<TAB>label`, 1 for praise and 0 for blame.

The order of the words decides, not the words alone: a negation turns an opinion round ("not bad", "hardly a triumph"),
and of two clauses the one that is conceded does not count ("although X , Y", "Y , even if X", "X but Y" are about Y).

usage: python3 datasets/make_reviews.py   (no dependencies; the same bytes every time)
"""
import os
import random

SUBJECTS = "film story plot cast music ending script".split()
ADJECTIVES = {1: "good great clever funny moving fresh warm".split(), 0: "bad poor dull clumsy bland stale cold".split()}
NOUNS = {1: "triumph delight treat gem".split(), 0: "mess bore chore failure".split()}
VERBS = {1: "liked loved enjoyed".split(), 0: "hated disliked regretted".split()}
NEGATIONS = ["not", "never", "hardly"]
DEGREES = ["", "", "very ", "quite "]


def clause(rng, positive):
    """A clause that says `positive`: plainly, or the opposite negated."""
    pick = rng.choice
    negated = rng.random() < 0.3
    said = int(positive != negated)
    subject = "the " + pick(SUBJECTS)
    form = rng.random()
    if form < 0.5:
        turn = pick(NEGATIONS) + " " if negated else pick(DEGREES)
        return f"{subject} {pick(['was', 'is'])} {turn}{pick(ADJECTIVES[said])}"
    if form < 0.75:
        turn = pick(NEGATIONS) + " a" if negated else "a"
        return f"{subject} {pick(['was', 'is'])} {turn} {pick(NOUNS[said])}"
    turn = pick(["never", "hardly"]) + " " if negated else ""
    return f"{pick(['i', 'we'])} {turn}{pick(VERBS[said])} {subject}"


def review(rng):
    positive = rng.random() < 0.5
    form = rng.random()
    main = clause(rng, positive)
    if form < 0.6:
        return main, positive
    other = clause(rng, not positive)
    if form < 0.75:
        return f"{other} but {main}", positive
    if form < 0.875:
        return f"although {other} , {main}", positive
    return f"{main} , even if {other}", positive


def main():
    rng = random.Random(20)
    seen, rows = set(), []
    while len(rows) < 1400:
        text, positive = review(rng)
        if text not in seen:
            seen.add(text)
            rows.append(f"{text}\t{int(positive)}\n")
    rng.shuffle(rows)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reviews")
    os.makedirs(folder, exist_ok=True)
    for name, part in [("train", rows[:1200]), ("dev", rows[1200:])]:
        with open(os.path.join(folder, name + ".tsv"), "w", encoding="utf-8", newline="\n") as file:
            file.writelines(part)


main()

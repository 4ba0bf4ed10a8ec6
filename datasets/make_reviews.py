#!/usr/bin/env python3
"""Writes datasets/reviews/{train,dev}.tsv: synthetic film reviews of three to six sentences, `text<TAB>label`.

What decides is what is said of the film, not which words occur:
- a negation turns an opinion round ("hardly a triumph", "there is nothing clumsy about the plot");
- of two opinions one may not count: it is conceded ("although X, Y"), denied ("not X but Y"), disappointed ("I expected
  X and got Y"), someone else's ("critics called it X, and they are wrong") or of another film ("unlike the dull Red
  Meridian, this film is charming");
- a whole sentence may not count: the thief in the plot is clumsy, the popcorn was awful, the book was a delight;
- after "overall" or "in the end" comes the verdict, which one opinion before it may contradict.

A third of the reviews is plain, so that a reader can learn the words at all. Every text, every name of a person, place
or film is made up here. No held-out review, with or without the sentences that don't count, is part of one in training.

usage: python3 datasets/make_reviews.py   (no dependencies; the same bytes every time)
"""
import os
import random

SEED, TRAIN, DEV, LABELS = 7, 1180, 260, {True: "positive", False: "negative"}

ADJECTIVES = {
    True: """brilliant charming clever elegant engaging funny gripping lively lovely moving polished refreshing smart
        splendid stirring superb touching warm witty wonderful""".split(),
    False: """awful bland boring clumsy confusing dreary dull empty flat forgettable lazy lifeless messy painful poor
        shallow silly stale tedious weak""".split(),
}
NOUNS = {
    True: "delight gem joy marvel masterpiece success treat triumph".split(),
    False: "bore chore disaster disappointment failure mess misfire ordeal".split(),
}
VERBS = {  # what one did: past and plain form
    True: ["admired admire", "enjoyed enjoy", "liked like", "loved love"],
    False: ["disliked dislike", "endured endure", "hated hate", "regretted regret"],
}
EFFECTS = {  # what it does to one: third person and plain form
    True: ["amuses amuse", "delights delight", "impresses impress", "moves move"],
    False: ["annoys annoy", "bores bore", "disappoints disappoint", "irritates irritate"],
}
NEGATED_BE = "is not|is not|was not|isn't|wasn't|is hardly|was never|is far from|is anything but".split("|")
NEGATED_DO = ["did not", "didn't", "never", "could not"]
CUES = ["overall,", "in the end,", "all in all,", "on the whole,"]
DEGREES = ["", "", "", "very ", "really ", "quite ", "truly "]

FILM = "film movie picture".split()
ASPECTS = """acting camerawork cast dialogue direction editing ending finale humour lead opening pacing plot score
    script soundtrack staging story writing""".split()
NOT_THE_FILM = "book novel play poster series trailer".split()
SURROUNDINGS = "cinema coffee crowd dinner hotel parking popcorn weather".split()
JUDGES = "critics friends people reviewers".split()
FIRST = """Agnes Bela Clara Dario Edith Felix Greta Hugo Irma Jonas Karla Leon Mira Nils Olga Pavel Rosa Stefan Tilda
    Viktor""".split()
LAST = """Abernal Brandvik Corvell Dunmore Estrell Farrow Gilmarsh Hartung Ilvane Jorvik Kestrel Lindholm Marlowe Norrby
    Ostrava Pellam Quist Rossiter Silvane Torvald""".split()
TITLES = [
    "Copper Road", "Harbour Lights", "Midnight Harvest", "Northern Line", "Paper Kings", "Red Meridian",
    "Salt and Cedar", "Seven Lanterns", "The Clockmaker", "The Glass Orchard", "The Last Ferry", "The Long Tide",
    "The Tin Sparrow", "Winter Station",
]
PEOPLE = """actress baker banker barber captain carpenter clerk colonel cook dancer detective doctor driver farmer
    fisherman gardener guide hunter judge juggler king lawyer librarian mayor miner monk nurse painter pilot pirate
    postman queen sailor singer soldier spy tailor teacher thief waiter widow""".split()
RELATIONS = "aunt brother cousin daughter father friend mother neighbour nephew niece rival sister son uncle".split()
PLACES = """bakery bridge castle cellar desert farm forest garden harbour hospital island lighthouse market monastery
    mountain museum palace prison railway school ship temple theatre valley village""".split()
CITIES = """Alvania Bristow Calder Dornach Elmsted Fjordal Grenzau Hallum Istria Jarrow Kelmet Lorvik Mandal Norwold
    Ostby Pernau Quimper Rydal Selby Tarnow Ulmen Varde Welden Ystad Zarnitz""".split()
OBJECTS = """bicycle camera coin compass crown diary horse key lamp letter map mirror necklace painting photograph piano
    ring suitcase sword telescope ticket violin""".split()
DEEDS = "borrows buries burns finds forges hides inherits loses paints repairs returns sells sends steals wins".split()
GENRES = "comedy drama fable musical mystery romance satire thriller western".split()
TIMES = "January March April June July October November December autumn spring summer winter".split()


def article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, among):
        return among[self.rng.randrange(len(among))]

    def chance(self, share):
        return self.rng.random() < share

    def adjective(self, good):
        return self.pick(ADJECTIVES[good])

    def noun(self, good):
        noun = self.pick(NOUNS[good])
        return article(f"{self.adjective(good)} {noun}" if self.chance(0.25) else noun)

    def person(self):
        return f"{self.pick(FIRST)} {self.pick(LAST)}"

    def subject(self):
        return "the " + self.pick(FILM + ASPECTS)

    def clause(self, good, negated=0.0):
        """A clause that says `good` of the film: plainly, or with that probability the opposite negated."""
        negated = self.chance(negated)
        said = good != negated
        form = self.rng.randrange(10)
        if form < 7:
            be = self.pick(NEGATED_BE if negated else ["is", "was"])
            if form < 5:
                return f"{self.subject()} {be} {'' if negated else self.pick(DEGREES)}{self.adjective(said)}"
            return f"{self.subject()} {be} {self.noun(said)}"
        if form < 9:
            who, (did, plain) = self.pick(["I", "we"]), self.pick(VERBS[said]).split()
            return f"{who} {self.pick(NEGATED_DO) + ' ' + plain if negated else did} {self.subject()}"
        does, plain = self.pick(EFFECTS[said]).split()
        return f"{self.subject()} {self.pick(NEGATED_DO) + ' ' + plain if negated else does}"

    def opinion(self, good):
        """A sentence that says `good` of the film in a roundabout way."""
        bad, film, adjective, noun, clause = not good, self.pick(FILM), self.adjective, self.noun, self.clause
        return self.pick([
            lambda: clause(good, negated=1.0),
            lambda: clause(good, negated=1.0),
            lambda: clause(good, negated=1.0),
            lambda: f"although {clause(bad, negated=0.3)}, {clause(good, negated=0.3)}",
            lambda: f"{clause(good, negated=0.3)}, even though {clause(bad, negated=0.3)}",
            lambda: f"{clause(bad, negated=0.3)}, but {clause(good, negated=0.3)}",
            lambda: f"this {film} is not {noun(bad)} but {noun(good)}",
            lambda: f"{self.subject()} is not {adjective(bad)} but {adjective(good)}",
            lambda: f"I expected {noun(bad)} and got {noun(good)}",
            lambda: f"{self.pick(JUDGES)} called it {noun(bad)}, and they are wrong",
            lambda: f"unlike the {adjective(bad)} {self.pick(TITLES)}, this {film} is {adjective(good)}",
            lambda: f"{self.pick(TITLES)} was {adjective(bad)}, while this {film} is {adjective(good)}",
            lambda: f"there is nothing {adjective(bad)} about {self.subject()}",
            lambda: f"it could have been {noun(bad)}, yet it is {noun(good)}",
        ])()

    def aside(self):
        """A sentence with an opinion, but not on the film."""
        good = self.chance(0.5)
        return self.pick([
            lambda: f"the {self.pick(SURROUNDINGS)} was {self.adjective(good)}",
            lambda: f"the {self.pick(NOT_THE_FILM)} was {self.noun(good)}",
            lambda: f"{self.person()} plays {article(self.adjective(good))} {self.pick(PEOPLE)}",
            lambda: f"my {self.pick(RELATIONS)} {self.pick(VERBS[good]).split()[0]} the {self.pick(NOT_THE_FILM)}",
        ])()

    def filler(self):
        """A sentence without any opinion."""
        return self.pick([
            lambda: f"{self.person()} directed it",
            lambda: f"{self.person()} plays the {self.pick(PEOPLE)}",
            lambda: f"{self.person()} wrote it after {self.pick(TITLES)}",
            lambda: f"it is a {self.pick(GENRES)} from {self.pick(CITIES)}",
            lambda: f"it is set in {article(self.pick(PLACES))} in {self.pick(TIMES)}",
            lambda: f"I saw it in {self.pick(TIMES)} with my {self.pick(RELATIONS)}",
            lambda: f"{article(self.pick(PEOPLE))} {self.pick(DEEDS)} {article(self.pick(OBJECTS))}",
            lambda: f"the {self.pick(PEOPLE)} meets {article(self.pick(RELATIONS))} in the {self.pick(PLACES)}",
            lambda: f"we follow {article(self.pick(PEOPLE))} to {self.pick(CITIES)}",
        ])()

    def review(self, good):
        """The text of a review that is `good`, and those of its sentences that count."""
        kind = self.rng.random()
        if kind < 0.36:
            counting = [self.clause(good), self.clause(good)]
        elif kind < 0.86:
            counting = [self.opinion(good) for _ in range(self.pick([1, 2, 2]))]
        else:
            counting = [self.clause(not good), f"{self.pick(CUES)} {self.clause(good)}"]
        counting = [sentence[0].upper() + sentence[1:] for sentence in counting]
        sentences = list(counting)
        others = [self.filler() for _ in range(max(3 - len(counting), self.pick([1, 1, 1, 2, 3])))]
        if self.chance(0.25):
            others.append(self.aside())
        for other in others:
            sentences.insert(self.rng.randrange(len(sentences) + 1), other[0].upper() + other[1:])
        return ". ".join(sentences) + ".", frozenset(counting)


def main():
    writer, parts, held_out = Writer(SEED), {"dev": [], "train": []}, set()
    while len(parts["train"]) < TRAIN:
        name = "dev" if len(parts["dev"]) < DEV else "train"
        good = len(parts[name]) % 2 == 0
        text, counting = writer.review(good)
        if any(counting >= other for other in held_out):
            continue  # all that counts in a held-out review would be here too
        if name == "dev":
            held_out.add(counting)
        parts[name].append((text, counting, LABELS[good]))
    for text, _, _ in parts["train"]:
        assert not any(set(text[:-1].split(". ")) >= other for other in held_out), text
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reviews")
    os.makedirs(folder, exist_ok=True)
    for name, part in parts.items():
        assert sum(label == LABELS[True] for _, _, label in part) * 2 == len(part), name
        writer.rng.shuffle(part)
        with open(os.path.join(folder, name + ".tsv"), "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{text}\t{label}\n" for text, _, label in part)


main()

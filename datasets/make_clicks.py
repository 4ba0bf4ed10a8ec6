#!/usr/bin/env python3
"""Writes datasets/clicks/{train,test}.libsvm: made-up readers who are shown articles and click, 1, or not, 0.

A line is `label feature:value …`, with features numbered from 1, field after field:
- the part of the day, the device, the reader's group, the article's section: one of each field, with the value 1;
- where on the page it stood (1 / place) and how old it was (log2 of 1 + days): a number each;
- its tags: one to three, together of length 1;
- the article and the reader: few occur often, most of them once or twice.

Whether there is a click is drawn from a probability that this script knows: groups like sections and devices suit parts
of the day, which no sum of one weight a feature can say; to that are added weights of place, age, tags, article and
reader, which one can. Non-clicks are fewer than on real pages, as if most had been left out.

It prints how often one is right who knows the probabilities, and who always says 0.

usage: python3 datasets/make_clicks.py   (no dependencies; the same bytes every time)
"""
import math
import os
import random

SEED, ROWS = 16, {"train": 3500, "test": 1200}
DAY, DEVICES, GROUPS, SECTIONS, TAGS, ARTICLES, READERS = 4, 3, 5, 6, 50, 400, 2000


class World:
    """Who likes what."""

    def __init__(self, rng):
        draw = lambda n, spread: [rng.gauss(0.0, spread) for _ in range(n)]
        self.rng = rng
        self.liking = [[2.0 * rng.choice((-1, 1)) for _ in range(SECTIONS)] for _ in range(GROUPS)]
        self.suiting = [[0.8 * rng.choice((-1, 1)) for _ in range(DAY)] for _ in range(DEVICES)]
        self.tags, self.articles, self.readers = draw(TAGS, 0.5), draw(ARTICLES, 0.7), draw(READERS, 0.4)
        # What an article or a reader is, once for all.
        self.section = [rng.randrange(SECTIONS) for _ in range(ARTICLES)]
        self.tagged = [sorted(rng.sample(range(TAGS), rng.randint(1, 3))) for _ in range(ARTICLES)]
        self.group = [rng.randrange(GROUPS) for _ in range(READERS)]

    def popular(self, n, steep):
        """A number below n, of which the first ones come often and the last ones hardly."""
        return int(n * self.rng.random() ** steep)

    def row(self):
        """The line of an article that was shown, and the probability of a click."""
        rng = self.rng
        article, reader = self.popular(ARTICLES, 3.0), self.popular(READERS, 2.0)
        day, device, place, age = rng.randrange(DAY), rng.randrange(DEVICES), rng.randint(1, 8), rng.randrange(30)
        section, group, tags = self.section[article], self.group[reader], self.tagged[article]
        high, old = 1.0 / place, math.log2(1 + age)
        score = -0.6 + self.liking[group][section] + self.suiting[device][day]
        score += 1.5 * high - 0.25 * old + self.articles[article] + self.readers[reader]
        score += sum(self.tags[tag] for tag in tags) / math.sqrt(len(tags))
        probability = 1.0 / (1.0 + math.exp(-score))
        first, cells = 1, []
        for count, held in [
            (DAY, [(day, 1)]),
            (DEVICES, [(device, 1)]),
            (GROUPS, [(group, 1)]),
            (SECTIONS, [(section, 1)]),
            (2, [(0, high), (1, old)]),
            (TAGS, [(tag, 1 / math.sqrt(len(tags))) for tag in tags]),
            (ARTICLES, [(article, 1)]),
            (READERS, [(reader, 1)]),
        ]:
            cells += [f"{first + number}:{value:.2g}" for number, value in held if value]
            first += count
        label = int(rng.random() < probability)
        return f"{label} {' '.join(cells)}\n", label, probability


def main():
    world = World(random.Random(SEED))
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clicks")
    os.makedirs(folder, exist_ok=True)
    for name, count in ROWS.items():
        rows = [world.row() for _ in range(count)]
        with open(os.path.join(folder, name + ".libsvm"), "w", encoding="utf-8", newline="\n") as file:
            file.writelines(line for line, _, _ in rows)
        right = sum(label == (probability > 0.5) for _, label, probability in rows) / count
        none = sum(label == 0 for _, label, _ in rows) / count
        print(f"{name}: {count} rows, knowing the probabilities {100 * right:.1f} %, always 0 {100 * none:.1f} %")


main()

#!/usr/bin/env python3
"""Writes datasets/names/LANGUAGE.txt: invented surnames of six invented languages, one a line, a file a language.

Each language builds names from syllables of its own and endings that it favours; some share a good part of both, so
that no single letter tells them apart and a name can belong to either.

usage: python3 datasets/make_names.py   (no dependencies; the same bytes every time)
"""
import os
import random

SEED, NAMES = 11, 220

# Onsets, vowels, codas of inner syllables, endings; "-" is none. What stands twice occurs twice as often.
LANGUAGES = {
    "Ardic": ("b d g k l m r s t th v -", "a a e o u", "- - r n l s", "an ar esh ok und ur"),
    "Belmari": ("b c d f g l m n p r s v", "a e i i o", "- - - l n r", "ano elli etta ini oro ucci"),
    "Corvish": ("b br c d dr g gr m p t tr w -", "a e i o u", "ck ll n nt r st -", "by ford ley ridge ton worth"),
    "Dravene": ("b cr d dr g l m p r t v -", "a e i o u", "- l n nt r st", "aine ard eau elle eur ois"),
    "Eskuri": ("h k k m n r s sh t y", "a a e i o u u", "- - - - n", "da ka ki ko mi ro ta"),
    "Fjallan": ("b bj d f g h j k l n s sk t v", "a e i o ö ø å", "- g l nd r rs v", "berg dal dsen gård lund strøm"),
}


def name(rng, language):
    pick = lambda words: words[rng.randrange(len(words))].replace("-", "")
    onsets, vowels, codas, endings = (part.split() for part in LANGUAGES[language])
    stem = "".join(pick(onsets) + pick(vowels) + pick(codas) for _ in range(1 + rng.randrange(2)))
    if rng.random() < 0.7:
        stem += pick(onsets) if stem[-1] in "aeiouöøå" else ""
        stem += pick(endings)
    return stem[0].upper() + stem[1:]


def main():
    rng = random.Random(SEED)
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names")
    os.makedirs(folder, exist_ok=True)
    for language in LANGUAGES:
        names = set()
        while len(names) < NAMES:
            new = name(rng, language)
            if len(new) > 2:
                names.add(new)
        with open(os.path.join(folder, language + ".txt"), "w", encoding="utf-8", newline="\n") as file:
            file.writelines(new + "\n" for new in sorted(names))


main()

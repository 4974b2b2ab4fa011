#!/usr/bin/env python3
"""bpe_reference.py FOLDER: GPT-2's tokenizer in the plainest way, to compare with. Writes vocab.json,
merges.txt and cases.jsonl: random text in many scripts with its tokens. HDT_TEST_SEED repeats a run."""

import collections
import json
import os
import random
import sys
import unicodedata

CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]
# Unicode's property White_Space.
SPACES = set(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
                       0x202F, 0x205F, 0x3000]))


def kind(character):
    if character in SPACES:
        return "space"
    category = unicodedata.category(character)[0]
    return {"L": "letter", "N": "number"}.get(category, "other")


def words(text):
    """The expression of GPT-2, alternative by alternative."""
    at = 0
    while at < len(text):
        short = next((c for c in CONTRACTIONS if text.startswith(c, at)), None)
        if short:
            yield short
            at += len(short)
            continue
        first = at + 1 if text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "space" else at
        if kind(text[first]) != "space":
            end = first
            while end < len(text) and kind(text[end]) == kind(text[first]):
                end += 1
        else:
            end = at
            while end < len(text) and kind(text[end]) == "space":
                end += 1
            if end < len(text) and end - at > 1:
                end -= 1
        yield text[at:end]
        at = end


def byte_characters():
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return characters


CHARACTERS = byte_characters()


def merge_all(symbols, pair):
    merged, at = [], 0
    while at < len(symbols):
        if tuple(symbols[at:at + 2]) == pair:
            merged.append(symbols[at] + symbols[at + 1])
            at += 2
        else:
            merged.append(symbols[at])
            at += 1
    return merged


def symbols_of(word):
    return [CHARACTERS[byte] for byte in word.encode()]


def encode(text, ranks, vocabulary):
    tokens = []
    for word in words(text):
        symbols = symbols_of(word)
        while True:
            pairs = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
            if not pairs:
                break
            symbols = merge_all(symbols, min(pairs, key=ranks.get))
        tokens += [vocabulary[symbol] for symbol in symbols]
    return tokens


def random_text(source):
    scripts = ["abcdefghe theand", "ABC xyz'", "äöüßéèñ", "абвгд ежз", "αβγδε", "一二三四五", "ひらがな", "ไทยภาษา",
               "🙂🙃👩‍👩‍👧", "0123456789", "٠١٢٣", "½¼²", " \t\n\r\u00a0\u2003\u3000\u0085", ".,;:!?-—'\"()",
               "e\u0301a\u0308", "'s't're've'm'll'd", "\x00\x01\x1f\x7f", "\u180e\u200b\ufeff"]
    text = ""
    for _ in range(source.randint(1, 12)):
        script = source.choice(scripts)
        text += "".join(source.choice(script) for _ in range(source.randint(1, 8)))
        text += source.choice(["", " ", "  "])
    return text


def learn(texts, count):
    """Sennrich's training: the most frequent pair is merged next."""
    corpus = collections.Counter(tuple(symbols_of(word)) for text in texts for word in words(text))
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for symbols, times in corpus.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        corpus = collections.Counter({tuple(merge_all(list(s), best)): n for s, n in corpus.items()})
    return merges


def main():
    folder = sys.argv[1]
    seed = int(os.environ.get("HDT_TEST_SEED") or random.randrange(2**32))
    print("seed", seed)
    source = random.Random(seed)
    merges = learn([random_text(source) for _ in range(300)], 300)
    vocabulary = {CHARACTERS[byte]: byte for byte in range(256)}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocabulary, file)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.write("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    with open(os.path.join(folder, "cases.jsonl"), "w", encoding="utf-8") as file:
        for _ in range(500):
            text = random_text(source)
            file.write(json.dumps({"text": text, "tokens": encode(text, ranks, vocabulary)}) + "\n")


if __name__ == "__main__":
    main()

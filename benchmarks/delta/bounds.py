"""Computes the entropy of the changes of a pair, with numpy alone.

    python benchmarks/delta/bounds.py                   # a table of all pairs that are made
    python benchmarks/delta/bounds.py OLD NEW           # two safetensors files

A code says which weights change and by how much. Both are taken as independent from weight to
weight: an empirical entropy in bits for each changed weight, of positions ("where") and of
differences of the bit patterns ("what"). Without context, there is one rate of change and one
distribution of differences for the pair; given the exponent, one for each value of the sign-less
exponent bits of the old weight, which sender and receiver both know. "By tensor" has separate rates
and distributions for each tensor of at least 16384 weights as well; smaller ones are one. Telling
the rates and distributions costs nothing here, so that "by tensor" is too low if tensors have few
changes.

Differences have signs; of a difference above 255 only the eight highest bits and the length have an
entropy, and the other bits count whole. Otherwise nearly every difference of a float32 would be
another symbol, and its entropy the number of changes, whatever the differences are.
"""

import argparse

import numpy

import pairs
import store

# Exponent bits as (bits below them, their number).
EXPONENT = {"F32": (23, 8), "BF16": (7, 8), "F16": (10, 5), "F8_E4M3": (3, 4)}
POOLED = 16384


def position_bits(size, changed):
    """size · H(changed / size)."""
    size, changed = numpy.asarray(size, float), numpy.asarray(changed, float)
    kept = size - changed
    with numpy.errstate(divide="ignore", invalid="ignore"):
        bits = changed * numpy.log2(size / changed) + kept * numpy.log2(size / kept)
    single = numpy.where((changed > 0) & (kept > 0), bits, 0)
    return float(single.sum())


def symbol_bits(symbols):
    """The number of symbols times their empirical entropy."""
    counts = numpy.unique(symbols, return_counts=True)[1].astype(float)
    return float((counts * numpy.log2(counts.sum() / counts)).sum()) if len(counts) else 0.0


def difference_bits(differences):
    """Bits of differences that are zigzag codes."""
    _, lengths = numpy.frexp(differences.astype(float))
    dropped = numpy.maximum(lengths - 8, 0).astype(numpy.int64)
    return symbol_bits((differences >> dropped) + (dropped << 32)) + float(dropped.sum())


class Group:
    """Counts of weights and of changes by exponent, and the differences with their exponents."""

    def __init__(self, tensors):
        self.sizes, self.changes = numpy.zeros(256, int), numpy.zeros(256, int)
        differences, exponents = [], []
        for kind, old, new in tensors:
            below, width = EXPONENT[kind]
            old, new = old.ravel(), new.ravel()
            exponent = ((old >> below) & ((1 << width) - 1)).astype(numpy.uint8)
            at = numpy.flatnonzero(old != new)
            self.sizes += numpy.bincount(exponent, minlength=256)
            self.changes += numpy.bincount(exponent[at], minlength=256)
            difference = (new[at] - old[at]).view(f"i{old.itemsize}").astype(numpy.int64)
            differences.append((difference << 1) ^ (difference >> 63))
            exponents.append(exponent[at])
        self.differences, self.exponents = numpy.concatenate(differences), numpy.concatenate(exponents)

    def bits(self, by_exponent):
        """Bits of positions and bits of differences."""
        if not by_exponent:
            return position_bits(self.sizes.sum(), self.changes.sum()), difference_bits(self.differences)
        parts = (self.differences[self.exponents == exponent] for exponent in numpy.unique(self.exponents))
        return position_bits(self.sizes, self.changes), sum(difference_bits(part) for part in parts)


def bounds(old_path, new_path):
    """Counts, and bits a changed weight, of a pair of files with the same names and shapes."""
    old, new = store.read(old_path), store.read(new_path)
    tensors = [(kind, bits, new[name][1]) for name, (kind, bits) in old.items()]
    whole = Group(tensors)
    small = [tensor for tensor in tensors if tensor[1].size < POOLED]
    groups = [Group([tensor]) for tensor in tensors if tensor[1].size >= POOLED]
    groups += [Group(small)] if small else []
    weights, changed = int(whole.sizes.sum()), int(whole.changes.sum())
    result = {"weights": weights, "changed": changed, "bytes": sum(bits.nbytes for _, bits, _ in tensors)}
    for title, counted in (("pair", [whole]), ("tensor", groups)):
        for context, by_exponent in (("none", False), ("exponent", True)):
            parts = [group.bits(by_exponent) for group in counted]
            where, what = (sum(part[which] for part in parts) / max(changed, 1) for which in (0, 1))
            result[f"{title} {context}"] = {"where": where, "what": what, "bytes": (where + what) / 8}
    return result


HEAD = [
    "pair", "weights", "changed", "where: no context → exponent", "what", "bytes: no context", "exponent", "exponent, by tensor",
]


def row(name, found):
    none, exponent, tensor = (found[key] for key in ("pair none", "pair exponent", "tensor exponent"))
    return [
        name, f"{found['weights'] / 1e6:.1f} M", f"{found['changed'] / found['weights']:.3%}",
        f"{none['where']:.2f} → {exponent['where']:.2f}", f"{none['what']:.2f} → {exponent['what']:.2f}",
        *(f"{part['bytes']:.3f}" for part in (none, exponent, tensor)),
    ]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="the old and the new file")
    files = parser.parse_args().files
    chosen = {"files": files} if files else {name: pairs.paths(name) for name in pairs.NAMES if pairs.made(name)}
    print(line(HEAD), line(["---"] + ["---:"] * (len(HEAD) - 1)), sep="\n")
    for name, both in chosen.items():
        print(line(row(name, bounds(*both))), flush=True)


if __name__ == "__main__":
    main()

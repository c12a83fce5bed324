"""The tables of results/weights/README.md, from the figures that measure.py has collected."""

import re

import bounds
import pairs
import peers

# Where more than this share of the weights changes, sizes are bits of all weights.
DENSE = 0.1
OURS = ["gradwire", "gradwire portable"]


def table(head, rows):
    """A Markdown table; every column but the first is right-aligned."""
    return "\n".join(bounds.line(cells) for cells in [head, ["---", *["---:"] * (len(head) - 1)], *rows])


def ordered(found):
    return [(name, found["pairs"][name]) for name in pairs.NAMES if name in found["pairs"]]


def share(entry):
    return entry["bounds"]["changed"] / entry["bounds"]["weights"]


def measured(entry, code):
    figures = entry["codes"].get(code)
    return figures if figures and "bytes" in figures else None


def pair_table(found):
    return table(bounds.HEAD, [bounds.row(f"`{name}`", entry["bounds"]) for name, entry in ordered(found)])


def size_table(found, dense):
    """Bytes a changed weight, or bits a weight, of every code; the best peer's is bold."""
    names = [*peers.PEERS, *OURS]
    rows = []
    for pair, entry in ordered(found):
        if (share(entry) > DENSE) != dense:
            continue
        unit = entry["bounds"]["weights"] / 8 if dense else entry["bounds"]["changed"]
        sizes = {name: measured(entry, name)["bytes"] / unit for name in names if measured(entry, name)}
        best = min((size for name, size in sizes.items() if name not in OURS), default=0)
        cells = []
        for name in names:
            text = f"{sizes[name]:.2f}" if name in sizes else "–"
            cells.append(f"**{text}**" if name in sizes and name not in OURS and sizes[name] == best else text)
        least = entry["bounds"]["pair exponent"]["bytes"] * entry["bounds"]["changed"] / unit
        rows.append([f"`{pair}`", *cells, f"{least:.2f}"])
    return table(["pair", *names, "entropy"], rows)


def speed_table(found, pair):
    """GB/s of the model and parts of a copy's speed, and memory in parts of the model. Only
    gradwire proves an update before it is written, and has a speed of writing alone."""
    entry = found["pairs"].get(pair)
    if entry is None:
        return "Not measured."
    size = entry["bounds"]["bytes"]
    rows = []
    for name in [*peers.PEERS, *OURS]:
        figures = measured(entry, name)
        if figures is None:
            continue
        cells = [f"{figures['bytes'] / size:.3%}"]
        for seconds in (figures["encode_s"], figures["apply_s"]):
            cells.append(f"{size / seconds / 1e9:.2f} ({figures['copy_s'] / seconds:.1%})")
        cells.append(f"{size / figures['commit_s'] / 1e9:.0f}" if "commit_s" in figures else "–")
        memory = (figures.get(which) for which in ("encode_memory", "apply_memory"))
        cells += ["–" if peak is None else f"{peak / size:.2f}" for peak in memory]
        rows.append([name, *cells])
    head = ["code", "size", "encode, GB/s (of a copy)", "decode and apply, GB/s (of a copy)", "commit alone", "memory of encode", "of apply"]
    return table(head, rows)


def dense_table(found):
    names, rows = [*peers.DENSE, "gradwire pack"], []
    for pair, entry in ordered(found):
        cells = [dense_cell(measured(entry, name), entry["bounds"]["bytes"]) for name in names]
        if any(cell != "–" for cell in cells):
            rows.append([f"`{pair}`", *cells])
    return table(["new file of", *names], rows)


def dense_cell(figures, size):
    if figures is None:
        return "–"
    speeds = [f", {size / figures[which] / 1e9:.2f}" for which in ("encode_s", "apply_s") if which in figures]
    return f"{figures['bytes'] / size:.1%}" + "".join(speeds)


def machine_line(found):
    machine = found.get("machine")
    if machine is None:
        return "Nothing is measured yet."
    busy = "idle otherwise" if machine["load"] < 1.5 else f"**shared with other work**, load {machine['load']:.0f}: read sizes, not speeds"
    return f"{machine['processor']}, one of {machine['cores']} cores, {busy}; {machine['date']}."


SPEEDS = ("minilm-late-1e-6", "grpo-late-1e-6", "grpo-late-folded", "large-1e-6")


def fill(page, found):
    """Replaces the text between each pair of markers of the page."""
    parts = {
        "machine": machine_line(found), "pairs": pair_table(found), "sparse": size_table(found, False),
        "many": size_table(found, True), "dense": dense_table(found),
        **{f"speed {pair}": speed_table(found, pair) for pair in SPEEDS},
    }
    text = page.read_text()
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        text = pattern.sub(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)
    page.write_text(text)

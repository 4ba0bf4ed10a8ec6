"""The table of `benches/compare`, from its lines of JSON."""

import collections
import json
import statistics
import sys

LEAST = 0.93
NAMES = ("workload", "mode", "opt", "V", "width")


def rate(line, step):
    """Work per second: over all time, or by a step's milliseconds of the given kinds."""
    if not step and "tokens_per_s_total" in line:
        return line["tokens_per_s_total"]
    kinds = ("step_ms_min", "step_ms_median", "forward_ms") if step else ("step_ms_median", "forward_ms")
    return next((1e3 / line[kind] for kind in kinds if line.get(kind)), line.get("tokens_per_s_total"))


# The backward pass of one operator is a row of its own.
def passes(line):
    yield line
    if line.get("backward_ms"):
        yield line | {"mode": f"{line.get('mode', '')} backward".strip(), "forward_ms": line["backward_ms"]}


lines = collections.defaultdict(lambda: {"base": [], "head": []})
with open(sys.argv[1], encoding="utf-8") as file:
    for line in (one for text in file for one in passes(json.loads(text))):
        name = " ".join(str(line[key]) for key in NAMES if key in line) or line["asked"]
        lines[name][line["side"]].append(line)

if not lines:
    sys.exit("compare: no workload printed a line of JSON")
lost = False
print("| workload | base per second | head per second | ratio | ratio of fastest steps | MB base, head |")
print("|---|---|---|---|---|---|")
for name, sides in lines.items():
    if not sides["head"] or any(rate(line, False) is None for side in sides.values() for line in side):
        print(f"| {name} | HEAD printed no speed | | | | |")
        lost = True
        continue
    if not sides["base"]:
        print(f"| {name} | not in the earlier commit | | | | |")
        continue
    base, head = (statistics.median(rate(line, False) for line in sides[side]) for side in sides)
    fastest = [max(rate(line, True) for line in sides[side]) for side in sides]
    memory = ", ".join(str(sides[side][0].get("peak_rss_mb", "-")) for side in sides)
    ratios = head / base, fastest[1] / fastest[0]
    lost |= max(ratios) < LEAST
    print(f"| {name} | {base:,.4g} | {head:,.4g} | {ratios[0]:.2f} | {ratios[1]:.2f} | {memory} |")
sys.exit(lost)

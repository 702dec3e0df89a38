"""Rows with their figures: medians, verdicts, the table."""

import statistics


def listed(numbers):
    return ", ".join(str(number) for number in numbers)


def judged(rows, parts, quick):
    """What --json writes. `parts`: by transport, what was measured over it."""
    lines = []
    for row in rows:
        part = parts.get(row.over, {})
        measured = part.get("measurements", {}).get(row.measurement)
        samples = (measured or {}).get("samples", {}).get(row.key(), [])
        failed = measured["failed"] if measured else f"the run over {row.over} ended before it"
        figure = statistics.median(samples) if samples else None
        why = failed or ("" if samples or quick else "no sample of it was taken")
        lines.append({
            "row": row.number, "name": row.name, "figure": figure, "goal": row.goal_text(),
            "holds": row.holds(figure) if samples and not quick else None, "samples": samples,
            "min": min(samples, default=None), "max": max(samples, default=None),
            "over": row.over, "on": part.get("note"), "why": why, "complete": not why})
    return lines


def verdict(line):
    if not line["samples"]:
        return f"not measured here: {line['why'] or '--quick leaves it out'}"
    words = {True: "holds", False: "missed", None: "not judged"}[line["holds"]]
    if not line["complete"]:
        words += f" (partial, {len(line['samples'])} sample(s): {line['why']})"
    return words


def number(value):
    return "-" if value is None else f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"


def show(lines, parts, given):
    for over, part in parts.items():
        print(f"{over}: {part['note']}")
    print(f"{given.repetitions} repetition(s), taken in turn; figures are medians")
    if given.quick:
        print("--quick: a check that it works; the figures mean nothing")
    width = max(len(line["name"]) for line in lines)
    goal = max(len(line["goal"]) for line in lines)
    print(f"\n{'row':>3}  {'name':{width}}  {'over':5}  {'figure':>10}  {'min':>10} {'max':>10}"
          f"  {'goal':>{goal}}  verdict")
    for line in lines:
        print(f"{line['row']:>3}  {line['name']:{width}}  {line['over']:5}"
              f"  {number(line['figure']):>10}  {number(line['min']):>10} {number(line['max']):>10}"
              f"  {line['goal']:>{goal}}  {verdict(line)}")
    judged = [line["holds"] for line in lines if line["holds"] is not None]
    print(f"\n{judged.count(True)} hold, {judged.count(False)} missed,"
          f" {sum(not line['samples'] for line in lines)} not measured here")

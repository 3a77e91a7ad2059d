"""The page of `kernelgas report`: one HTML file that loads nothing, and its twin in Markdown with the pictures beside it."""

from __future__ import annotations

import datetime
import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.claims import INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED, VERDICTS, Outcome
from experiments.claims.rules import Finding
from experiments.report import STYLE, Section, Table, figure_bytes, machine, p_value, section_html

if TYPE_CHECKING:
    from experiments.evidence import Coverage, Evidence, Part

HEADER = ("verdict", "claim", "paper", "ours (95 % interval)", "n", "p (of how many)", "must lie", "setting, or the command")
KINDS = {REPRODUCED: "yes", NOT_REPRODUCED: "no", INCONCLUSIVE: "open", NOT_RUN: "never"}
MEANING = {
    REPRODUCED: "the interval lies wholly where the claim puts the number",
    NOT_REPRODUCED: "the interval lies wholly where the claim is wrong, or where the effect is too small to be the one that is claimed",
    INCONCLUSIVE: "neither; a single seed has no interval",
    NOT_RUN: "no unit of these rows has finished; the command stands in the row",
}
READING = (
    "Verdicts follow from rules in code (experiments/claims), not from prose. n: seeds (or sizes, or conditions) behind a number. p for: "
    "how likely such a number is if it does not lie where it must; p against: if it does, or comes as near as counts for none. The smaller "
    "one is shown (1 where neither is less), corrected by Holm's method over so many claims, those of one table with one setting; a "
    "verdict needs 0.05 at most. This is another question than in the tables and figures of the experiments, whose p is of no difference, "
    "corrected over their lines, and whose words (better, worse) go by intervals that are not corrected. "
    "Where a paper's own figure contradicts its sentence, the row says so, and whether our interval holds that figure. The "
    "intervals shown are not corrected, so one may lie apart from the bound and the claim be inconclusive still. Differences are paired by "
    "seed, and by test example where the examples are kept. A best baseline is the best on validation data, where the table has such data."
)
MOST_MISSING = 12

# ---- text --------------------------------------------------------------------------------------------------------------------------------


def told(finding: Finding | None) -> str:
    """A number with its unit and interval."""
    if finding is None:
        return "-"
    signed = finding.unit in ("points", "nats")
    digits = {"points": 1, "%": 1, "times": 2, "nats": 4}.get(finding.unit)
    estimate = finding.interval()
    value, low, high = (_number(number, digits, signed) for number in estimate)
    unit = f" {finding.unit}" if finding.unit else ""
    if not finding.errors:
        return f"{value}{unit}"
    return f"{value}{unit} ({low} to {high})" if math.isfinite(estimate.high) else f"{value}{unit} (no interval)"


def _number(value: float, digits: int | None, signed: bool) -> str:
    text = f"{value:.3g}" if digits is None else f"{value:z.{digits}f}"
    return f"+{text}" if signed and float(text) > 0 else text


def _row(outcome: Outcome) -> list[str]:
    """The cells of a claim, in the order of HEADER."""
    claim, finding = outcome.claim, outcome.finding
    where = claim.how_to_run() if finding is None else "; ".join(filter(None, (outcome.label, finding.note)))
    n = str(finding.n) if finding else "-"
    return [outcome.verdict, claim.says, _paper(outcome), told(finding), n, _p(outcome), claim.region.words, where]


def _p(outcome: Outcome) -> str:
    """p with its direction and the number of claims that it is corrected for."""
    if outcome.finding is None or not outcome.finding.certain:
        return "-"
    if outcome.p >= 1:
        return f"1 (of {outcome.family})"
    return f"{p_value(outcome.p)} {'for' if outcome.upholds else 'against'} (of {outcome.family})"


def _paper(outcome: Outcome) -> str:
    """The paper's figure; where it contradicts the sentence, that, and whether ours agrees with the figure."""
    if not outcome.claim.contradicted:
        return outcome.claim.paper
    ours = {None: "", True: "; our interval holds this figure", False: "; our interval does not hold this figure"}[outcome.agrees]
    return f"{outcome.claim.paper}, which contradicts the claim{ours}"


def _tables(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Claims of one source together: the source, how ours differs from it, and the claims."""
    for (source, differs), rows in groupby(outcomes, key=lambda outcome: (outcome.claim.source, outcome.claim.differs)):
        yield source, f"Ours: {differs}." if differs else "", list(rows)


def summary(evidence: Evidence) -> str:
    """How many claims got which verdict, as aligned text."""
    return str(_counts(evidence))


def _counts(evidence: Evidence) -> Table:
    rows = []
    for paper, outcomes in evidence.outcomes.items():
        n = Counter(outcome.verdict for outcome in outcomes)
        rows.append([paper, *(str(n[word]) for word in VERDICTS), str(len(outcomes))])
    return Table("Verdicts", ["claims of", *VERDICTS, "all"], rows)


def _coverage(parts: Sequence[Part]) -> Table:
    """Which units ran."""
    rows = []
    for part in parts:
        c = part.coverage
        by_first = "; ".join(f"{name} {ran} of {n}" for name, (ran, n) in c.by_first.items())
        more = f", and {len(c.missing) - MOST_MISSING} more" if len(c.missing) > MOST_MISSING else ""
        missing = "; ".join(c.missing[:MOST_MISSING]) + more if c.finished else "the main table" if c.searched else "all"
        rows.append(
            [f"{part.name}, {part.label}", *_finished(c), str(c.searched), str(c.others), f"{c.seconds / 60:.0f}", by_first,
             missing if c.missing else "none"]
        )  # fmt: skip
    hours = sum(part.coverage.seconds for part in parts) / 3600
    notes = [
        "finished: of the units that the preset plans. of rates: those of a search for learning rates, on seeds that are in no table. "
        "more: finished units that neither plans, such as other parts, rows or seeds.",
        f"CPU min: processor time of these units; all together {hours:.1f} hours of one core.",
        "Nothing is filled in: what did not run is missing from every number on this page.",
    ]
    return Table("Units", ["experiment", "finished", "of rates", "more", "CPU min", "by the first coordinate", "missing"], rows, notes)


def _finished(c: Coverage) -> list[str]:
    """The cell of finished units; a search alone does not plan the main table."""
    return ["-" if c.searched and not c.finished else f"{c.finished} of {c.planned}"]


def _origin(part: Part) -> list[str]:
    """Reduction, data, dates and machines of one experiment, a sentence each."""
    c = part.coverage
    lines = [f"{_ran(c)}."]
    if part.reduced:
        lines.append(f"Against the paper's sizes: {part.reduced}.")
    for first, source in part.facts.get("data", {}).items():
        sha = part.facts.get("data_sha256", {}).get(first, "")
        lines.append(f"Data of {first}: {source}" + (f", sha256 {sha[:16]}" if sha else "") + ".")
    for made in _distinct(part.made):
        lines.append(f"Made: {made}.")
    return lines


def _ran(c: Coverage) -> str:
    """How many units ran, each kind against its own plan."""
    kinds = [f"{c.finished} of {c.planned} planned units ran"] if c.finished or not c.searched else []
    kinds += [f"{c.searched} units of a search for learning rates ran, which are no part of the tables"] if c.searched else []
    return ", and ".join([*kinds, *([f"{c.others} more"] if c.others else [])])


def _title(part: Part) -> str:
    """The section's title with its setting; a search for learning rates alone is named so."""
    what = ", search for learning rates" if part.coverage.searched and not part.coverage.finished else ""
    return f"{part.section.title}{what} ({part.name}, {part.label})"


def _distinct(made: Sequence[dict[str, str]]) -> list[str]:
    """One line for each machine and set of versions, with the first and last date."""
    dates: dict[str, list[str]] = {}
    for one in made:
        rest = ", ".join(f"{name} {value}" for name, value in one.items() if name != "date")
        dates.setdefault(rest, []).append(one.get("date", "no date"))
    return [f"{min(days)}" + (f" to {max(days)}" if min(days) < max(days) else "") + f", {rest}" for rest, days in dates.items()]


# ---- HTML --------------------------------------------------------------------------------------------------------------------------------

_LOOK = """
td{vertical-align:top} .claims{width:100%} .claims td,.claims th{white-space:normal;text-align:left}
.claims td:nth-child(4),.claims td:nth-child(3){min-width:9rem}
.claims tbody th{background:#f4f4f4;border-bottom:1px solid #ccc;font-weight:600}
.badge{display:inline-block;padding:0 .5rem;border-radius:.7rem;font-size:.82rem;white-space:nowrap;border:1px solid}
.yes .badge{background:#d8f0e8;border-color:#009e73} .no .badge{background:#fbe3d2;border-color:#d55e00;font-weight:600}
.open .badge{background:#fff4d6;border-color:#e69f00} .never .badge{background:#eee;border-color:#8c8c8c}
code{font-size:.82rem;overflow-wrap:anywhere} .filter label{margin-right:1rem;white-space:nowrap} nav a{margin-right:1rem}
.filter{position:sticky;top:0;background:#fff;padding:.4rem 0;border-bottom:1px solid #ccc;z-index:1}
.wide td{white-space:normal;max-width:30rem}
@media (max-width:50rem){.claims thead{display:none} .claims tr{display:block;border-bottom:1px solid #ccc;padding:.4rem 0}
.claims td,.claims tbody th{display:block;border:0;padding:.1rem .2rem} .claims td::before{content:attr(data-name) ": ";color:#666}
.claims td:nth-child(1)::before,.claims td:nth-child(2)::before{content:""} .never td:nth-child(n+4):nth-child(-n+6){display:none}}
body{overflow-wrap:break-word} .claims td:nth-child(5),.claims td:nth-child(6){white-space:nowrap} th .note{font-weight:400}
""" + "".join(
    f"body:has(#show-{kind}:not(:checked)) tr.{kind}{{display:none}}\n" for kind in KINDS.values()
) + "".join(
    f"body:has(#show-{kind}:not(:checked)) .claims tbody:not(:has({','.join(f'tr.{other}' for other in KINDS.values() if other != kind)}))"
    "{display:none}\n"
    for kind in KINDS.values()
)  # fmt: skip


def page(evidence: Evidence, figures: Path) -> str:
    """The whole page; pictures are read from the folder `figures`."""
    boxes = "".join(
        f"<label title='{html.escape(MEANING[word])}'><input type='checkbox' id='show-{kind}' checked> {word}</label>"
        for word, kind in KINDS.items()
    )
    meanings = "".join(f"<li><b>{word}</b>: {html.escape(MEANING[word])}</li>" for word in VERDICTS)
    papers = "".join(_paper_html(paper, outcomes, f"paper-{k}") for k, (paper, outcomes) in enumerate(evidence.outcomes.items()))
    aims = section_html(evidence.aims, figures) if evidence.aims else ""
    links = "".join(f"<a href='#paper-{k}'>{html.escape(paper)}</a>" for k, paper in enumerate(evidence.outcomes))
    facts = "".join(f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>" for key, value in _here().items())
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(evidence.title)}</title><style>{STYLE}{_LOOK}</style><h1>{html.escape(evidence.title)}</h1>"
        f"{_counts(evidence).html()}<ul>{meanings}</ul><p>{html.escape(READING)}</p>"
        f"<nav>{links}<a href='#aims'>Our best kernel</a><a href='#units'>Units</a>"
        f"<a href='#experiments'>Experiments</a></nav><div class='filter'>Show: {boxes}</div>"
        f"{papers}<div id='aims'></div>{aims}"
        f"<h2 id='units'>Which units ran</h2>{_coverage(evidence.parts).html()}<div id='experiments'></div>"
        f"{''.join(_part_html(part, figures) for part in evidence.parts)}"
        f"<h2>How this page was made</h2><pre>kernelgas report</pre><div class='wide'><table>{facts}</table></div></html>\n"
    )


def _paper_html(paper: str, outcomes: Sequence[Outcome], anchor: str) -> str:
    """The claims of one paper, table by table."""
    head = "".join(f"<th>{name}</th>" for name in HEADER)
    bodies = "".join(
        f"<tbody><tr><th colspan='{len(HEADER)}'>{html.escape(source)}{_note(differs)}</th></tr>{''.join(map(_claim_html, rows))}</tbody>"
        for source, differs, rows in _tables(outcomes)
    )
    table = f"<table class='claims'><thead><tr>{head}</tr></thead>{bodies}</table>"
    return f"<h2 id='{anchor}'>Claims: {html.escape(paper)}</h2><div class='wide'>{table}</div>"


def _note(text: str) -> str:
    return f"<p class='note'>{html.escape(text)}</p>" if text else ""


def _claim_html(outcome: Outcome) -> str:
    verdict, *cells = map(html.escape, _row(outcome))
    if outcome.finding is None:
        cells[-1] = f"<code>{cells[-1]}</code>"
    data = "".join(f"<td data-name='{name}'>{cell}</td>" for name, cell in zip(HEADER[1:], cells, strict=True))
    return f"<tr class='{KINDS[outcome.verdict]}'><td><span class='badge'>{verdict}</span></td>{data}</tr>"


def _part_html(part: Part, figures: Path) -> str:
    """One experiment: where it comes from, then its own section."""
    lines = "".join(map(_note, _origin(part)))
    settings = html.escape(json.dumps(part.settings, indent=2))
    named = Section(**vars(part.section) | {"title": _title(part)})
    return section_html(named, figures) + lines + f"<details><summary>Settings</summary><pre>{settings}</pre></details>"


def _here() -> dict[str, str]:
    """When and where the page was made."""
    return {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")} | machine()


# ---- Markdown ----------------------------------------------------------------------------------------------------------------------------


def markdown(evidence: Evidence) -> str:
    """The same in Markdown; pictures lie in figures/ beside it."""
    blocks = [f"# {evidence.title}", _grid(_counts(evidence)), "\n".join(f"* **{word}**: {MEANING[word]}" for word in VERDICTS), READING]
    for paper, outcomes in evidence.outcomes.items():
        blocks.append(f"## Claims: {paper}")
        for source, differs, rows in _tables(outcomes):
            blocks.append("\n\n".join(filter(None, (f"### {source}", differs, _lines(HEADER, [_marked(row) for row in rows])))))
    blocks += _section_blocks(evidence.aims, evidence.aims.title) if evidence.aims else []
    blocks += ["## Which units ran", _grid(_coverage(evidence.parts)), *(block for part in evidence.parts for block in _part_blocks(part))]
    blocks += ["## How this page was made", _lines(("what", "value"), [list(pair) for pair in _here().items()])]
    return "\n\n".join(blocks) + "\n"


def _marked(outcome: Outcome) -> list[str]:
    cells = _row(outcome)
    cells[0] = f"**{cells[0]}**"
    return [*cells[:-1], f"`{cells[-1]}`"] if outcome.finding is None else cells


def _part_blocks(part: Part) -> Iterable[str]:
    """One experiment in Markdown."""
    yield from _section_blocks(part.section, _title(part), "\n".join(f"* {line}" for line in _origin(part)))


def _section_blocks(section: Section, title: str, origin: str = "") -> Iterable[str]:
    """A section in Markdown."""
    yield f"## {title}"
    yield section.text
    yield from [origin] if origin else []
    yield from map(_grid, section.tables)
    if section.verdicts:
        yield "\n".join(f"* {sentence}" for sentence in section.verdicts)
    yield from (f"![{caption}](figures/{name})" for name, caption in section.pictures.items())


def _grid(table: Table) -> str:
    """A table in Markdown with its title and notes."""
    notes = "".join(f"\n\n{note}" for note in table.notes)
    return f"**{table.title}**\n\n{_lines(table.header, table.rows)}{notes}"


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |" for row in cells)


# ---- files -------------------------------------------------------------------------------------------------------------------------------


def write(evidence: Evidence, folder: Path) -> Path:
    """Write index.html, report.md and the pictures; returns the folder."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for drawn in (evidence.pictures, *(part.figures for part in evidence.parts)):
        for name, figure in drawn.items():
            (figures / name).write_bytes(figure_bytes(figure))
    (folder / "index.html").write_text(page(evidence, figures), encoding="utf-8")
    (folder / "report.md").write_text(markdown(evidence), encoding="utf-8")
    return folder

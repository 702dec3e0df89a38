"""The report of a run: one page for people, the same as JSON, and an archive of all output. What goes
in has lost names of hosts and addresses, unless the user wants to keep them."""

import io
import json
import os
import re
import socket
import tarfile

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"
SHOWN_LINES = 60  # of the output of a step that failed; the archive has the rest

CONTENTS = ("Facts of the machine that the tables below show, the output of the programs that were run, and"
            " figures. {addresses} No data of yours is read. The archive beside this file has all output.")
REMOVED = ("Names of this host, IP and MAC addresses, GIDs and GUIDs were replaced by words such as `ADDRESS_1`;"
           " the same word stands for the same address.")
KEPT = "Names of hosts and addresses are in it, as --keep-addresses asks."

HEX = r"[0-9a-fA-F]"
# In this order: a GID has more groups than a GUID, which has more than an address of IPv4.
ADDRESSES = (
    ("MAC", rf"(?<![\w:])(?:{HEX}{{2}}[:-]){{5,}}{HEX}{{2}}(?![\w:])"),  # 20 bytes on InfiniBand
    ("GID", rf"(?<![\w:])(?:{HEX}{{4}}:){{7}}{HEX}{{4}}(?![\w:])"),
    ("GUID", rf"(?<![\w:])(?:{HEX}{{4}}:){{3}}{HEX}{{4}}(?![\w:])"),
    # IPv6 has `::` or eight groups; times (12:34:56) have neither.
    ("ADDRESS", rf"(?<![\w:.])(?:(?:{HEX}{{1,4}}:){{1,6}}|:):(?:{HEX}{{1,4}}:){{0,6}}(?:\d+(?:\.\d+){{3}}|{HEX}{{1,4}})?"
                rf"(?![\w:.])"),
    ("ADDRESS", rf"(?<![\w:])(?:{HEX}{{1,4}}:){{7}}{HEX}{{1,4}}(?![\w:])"),
    ("ADDRESS", r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\w|\.\d)"),
)
OF_EVERY_MACHINE = re.compile(r"127\.\d+\.\d+\.\d+|0\.0\.0\.0|255\.[\d.]+|192\.0\.2\.\d+|::1?|fe80::")


class Scrubber:
    """Takes names of hosts and addresses out of texts. One address is one word in all of them."""

    def __init__(self, keep=False, names=None, replace=None):
        """`names`: of hosts; `replace`: {text: word}, such as the user's folders."""
        self.keep, self.words, self.counts = keep, {}, {}
        name = socket.gethostname()
        names = {name, name.partition(".")[0]} if names is None else names
        self.names = sorted({n for n in names if n and n != "localhost"}, key=len, reverse=True)
        self.replace = replace or {}

    def word(self, kind, address):
        if OF_EVERY_MACHINE.fullmatch(address):
            return address
        key = address.lower()
        if key not in self.words:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.words[key] = f"{kind}_{self.counts[kind]}"
        return self.words[key]

    def __call__(self, text):
        if self.keep:
            return text
        for path, word in self.replace.items():
            text = text.replace(path, word)
        for kind, pattern in ADDRESSES:
            text = re.sub(pattern, lambda found, kind=kind: self.word(kind, found.group()), text)
        for name in self.names:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", text)
        return text


class Report:
    """Written after each step: a run that is ended leaves what it has found."""

    def __init__(self, path, scrub, subject):
        self.path, self.scrub, self.subject = path, scrub, subject
        stem = path.removesuffix(".md")
        self.json_path, self.archive_path = stem + ".json", stem + "-logs.tar.gz"
        self.steps, self.about, self.figures, self.findings, self.counters = [], {}, [], [], {}
        self.logs, self.command, self.revision, self.ended = {}, "", "", ""

    def outcomes(self, verdict):
        return [step for step in self.steps if step["verdict"] == verdict]

    def headline(self):
        if self.ended:
            return self.ended
        failed = [step["name"] for step in self.outcomes(FAILED)]
        if failed:
            return f"FAILED: {', '.join(failed)}"
        return "every step that was run passed" if self.outcomes(PASSED) else "nothing was run"

    def counts(self):
        return ", ".join(f"{len(self.outcomes(verdict))} {verdict}" for verdict in (PASSED, FAILED, NOT_RUN))

    def markdown(self):
        lines = [f"# rkv on {self.subject}: {self.headline()}", "", f"{self.counts()}. `{self.command}`, revision"
                 f" {self.revision}.", "", "| step | verdict | seconds | what |", "|---|---|---|---|"]
        for step in self.steps:
            note = step["note"].replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {step['name']} | {step['verdict']} | {step['seconds']:.0f} | {note} |")
        lines += ["", "What is in this report: " + CONTENTS.format(addresses=KEPT if self.scrub.keep else REMOVED)]
        for step in self.outcomes(FAILED):
            tail = self.logs.get(step["name"], "").splitlines()[-SHOWN_LINES:]
            lines += ["", f"## Output of {step['name']}, which failed", "", "```", *tail, "```"]
        if self.findings:
            lines += ["", "## kvclient doctor", "", "| verdict | check | subject | found | advice |", "|---|---|---|---|---|"]
            lines += ["| " + " | ".join(str(finding[key]).replace("|", "\\|") for key in
                                        ("status", "check", "subject", "found", "advice")) + " |"
                      for finding in self.findings]
        if self.figures:
            lines += ["", "## Figures", "", "| figure | median | least | most |", "|---|---|---|---|"]
            lines += [f"| {row['name']} | {row['figure']:,.3f} | {row['min']:,.3f} | {row['max']:,.3f} |"
                      for row in self.figures]
        for title, facts in self.about.items():
            lines += ["", f"## {title}", "", "| fact | value |", "|---|---|"]
            lines += [f"| {name} | {str(value).replace('|', ' ')} |" for name, value in facts.items()]
        if self.counters:
            lines += ["", "## Counters of the device that changed during the run", "", "| counter | by |", "|---|---|"]
            lines += [f"| {name} | {by:,} |" for name, by in self.counters.items()]
        return "\n".join(lines) + "\n"

    def as_json(self):
        return {"subject": self.subject, "headline": self.headline(), "command": self.command,
                "revision": self.revision, "steps": self.steps, "doctor": self.findings, "figures": self.figures,
                "machine": self.about, "counters": self.counters}

    def write(self):
        with open(self.path, "w", encoding="utf-8") as out:
            out.write(self.markdown())
        with open(self.json_path, "w", encoding="utf-8") as out:
            json.dump(self.as_json(), out, indent=2)
            out.write("\n")
        with tarfile.open(self.archive_path, "w:gz") as archive:
            for name, text in self.logs.items():
                data = text.encode()
                entry = tarfile.TarInfo(os.path.join("logs", f"{name}.log"))  # of no user
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))

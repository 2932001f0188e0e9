"""Links between the documents: the files exist, and so do the headings."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench/README.md", *ROOT.glob("tests/*/README.md")]
    return sorted(found)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes from headings, and explicit ones."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found | set(re.findall(r'<a id="([^"]+)">', text))


def test_links() -> None:
    wrong = []
    for page in pages():
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in LINK.findall(text):
            name, _, anchor = link.partition("#")
            if ":" in name:
                continue
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                wrong.append(f"{page.relative_to(ROOT)}: there is no {name}")
            elif anchor and anchor not in anchors(target):
                wrong.append(f"{page.relative_to(ROOT)}: {target.name} has no #{anchor}")
    assert not wrong, "\n".join(wrong)

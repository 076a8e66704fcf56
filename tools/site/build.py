"""Builds the documentation as a site: python build.py ROOT WORK.

The pages are the repository's Markdown files, wherever they lie, so that links work on a code host and on the site
alike. Zensical wants all of them below one folder, so they are copied to WORK/pages under their own paths; README.md is
the first page. Links to files that are no pages, such as source code, lead to the code host.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/", "python/README.md", "examples/")
KINDS = {".md", ".png", ".svg"}
HOST = "https://github.com/kvferry/kvferry/blob/main/"
LINK = re.compile(r"(\]\()([^()\s#]+)((?:#[^()\s]*)?\))")
# Blocks of code and code within a line, which may look like links: `values[i](21)`.
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def tracked(root: Path) -> list[str]:
    """Return the files of the repository that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listed.stdout.splitlines() if (root / name).exists()]


def is_page(name: str) -> bool:
    """Report whether a file of the repository is part of the site."""
    return name.startswith(PAGES) and Path(name).suffix in KINDS


def rewrite(root: Path, name: str, text: str) -> str:
    """Return the page with links to files outside the site leading to the code host.

    Raises ValueError for a link to a file that does not exist.
    """

    def target(match: re.Match[str]) -> str:
        if "://" in match[2] or match[2].startswith("mailto:"):
            return match[0]
        file = (root / name).parent.joinpath(match[2]).resolve()
        if not file.exists():
            message = f"{name} links to {match[2]}, which does not exist: correct the link"
            raise ValueError(message)
        inside = file.relative_to(root).as_posix()
        if is_page(inside):
            return match[0]
        return f"{match[1]}{HOST}{inside}{match[3]}"

    parts = CODE.split(text)  # Text and code in turn.
    return "".join(part if i % 2 else LINK.sub(target, part) for i, part in enumerate(parts))


def main() -> None:
    """Copy the pages and build the site; a warning, such as a link to a heading that does not exist, fails."""
    root, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    pages = work / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for name in filter(is_page, tracked(root)):
        copy = pages / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.suffix == ".md":
            copy.write_text(rewrite(root, name, (root / name).read_text()))
        else:
            shutil.copyfile(root / name, copy)
    config = work / "mkdocs.yml"
    shutil.copyfile(Path(__file__).parent / "mkdocs.yml", config)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean", "-f", config], cwd=work, check=False)  # noqa: S603
    if built.returncode != 0:
        sys.exit(1)
    print(f"the site is in {work / 'site'}: open index.html, or run python3 -m http.server -d {work / 'site'}")


if __name__ == "__main__":
    main()

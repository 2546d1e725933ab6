"""Source files as HTML: highlighted by pygments, and the difference between two of them."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from itertools import chain

from markupsafe import Markup, escape
from pygments.lexers import CudaLexer
from pygments.token import Comment, Keyword, Number, String, _TokenType

from alexconv.reports.elements import Code

CLASSES = ((Comment.Preproc, "cp"), (Comment, "c"), (Keyword, "k"), (String, "s"), (Number, "m"))  # the first that fits
CONTEXT = 2  # lines around a change


def listing(code: Code) -> list[Markup]:
    """A file's lines, or those that differ from the file before: added ones in ``b``, removed ones in ``i``."""
    after = highlighted(code.text)
    if code.before is None:
        return [line + "\n" for line in after]
    return [*changes(code.before.splitlines(), code.text.splitlines(), highlighted(code.before), after)]


def changes(before: list[str], after: list[str], old: tuple[Markup, ...], new: tuple[Markup, ...]) -> Iterator[Markup]:
    """The lines of a unified diff; ``old`` and ``new`` are the highlighted ones."""
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        (_, first, _, start, _), (_, _, last, _, end) = group[0], group[-1]
        yield Markup("<u>@@ -{},{} +{},{} @@</u>").format(first + 1, last - first, start + 1, end - start)
        for tag, i, to_i, j, to_j in group:
            if tag == "equal":
                yield from (Markup("  {}\n").format(line) for line in new[j:to_j])
            else:
                yield from (Markup("<i>- {}</i>").format(line) for line in old[i:to_i])
                yield from (Markup("<b>+ {}</b>").format(line) for line in new[j:to_j])


@cache  # a source is shown on its rung's page and beside those that follow from it
def highlighted(text: str) -> tuple[Markup, ...]:
    """The lines of CUDA C++ with comments, keywords, strings and numbers marked."""
    tokens = CudaLexer(stripnl=False, ensurenl=False).get_tokens(text)
    pieces = chain.from_iterable(pieces_of(kind, part) for kind, part in tokens)
    return tuple(Markup(line) for line in "".join(pieces).split("\n"))


def pieces_of(kind: _TokenType, text: str) -> Iterator[str]:
    """A token's lines, each within an element of its class."""
    name = next((name for parent, name in CLASSES if kind in parent), "")
    for line in text.splitlines(keepends=True):
        words = line.rstrip("\n")
        marked = name and words.strip()
        yield f'<span class="{name}">{escape(words)}</span>{line[len(words) :]}' if marked else str(escape(line))

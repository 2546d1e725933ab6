"""Changes the project's own Python for a test, as far as keys see it."""

import pytest

from alexconv import code


def edit_code(patch: pytest.MonkeyPatch, module: str, before: str, after: str) -> None:
    """Replaces a text in a module's source, from which digests of code are made; what runs stays as it is."""
    plain = code.source_of
    assert before in plain(module), (module, before)

    def source_of(name: str) -> str:
        return plain(name).replace(before, after, 1) if name == module else plain(name)

    patch.setattr(code, "source_of", source_of)
    forget_code()


def forget_code() -> None:
    """Lets the next digests be made from the sources again."""
    code.code_digest.cache_clear()
    code.definitions.cache_clear()

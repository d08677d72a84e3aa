"""How many examples property-based tests try: all in `make test`, fewer in `make test-fast`."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["FAST_PROFILE", "examples"]

#: Chosen by `--hypothesis-profile=fast`; also the number of examples of tests that name none (else 100).
FAST_PROFILE = "fast"
_SHARE = 5

settings.register_profile(FAST_PROFILE, max_examples=20)


def examples(full: int) -> int:
    """The number for a test that names its own; call it while the test module is imported or later."""
    return max(1, full // _SHARE) if settings.get_current_profile_name() == FAST_PROFILE else full

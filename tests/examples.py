"""How many examples tests of properties try: all in `make test`, fewer in CI and `make test-fast`, more by hand."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["FAST_PROFILE", "THOROUGH_PROFILE", "examples"]

#: Chosen by `--hypothesis-profile=fast`; also the number of examples of tests that name none (else 100).
FAST_PROFILE = "fast"
_SHARE = 5

#: Chosen by `--hypothesis-profile=thorough`, with a `--timeout` to match.
THOROUGH_PROFILE = "thorough"
_TIMES = 20

settings.register_profile(FAST_PROFILE, max_examples=20, deadline=None)
settings.register_profile(THOROUGH_PROFILE, max_examples=2_000, deadline=None)


def examples(full: int) -> int:
    """The number for a test that names its own; call it while the test module is imported or later."""
    profile = settings.get_current_profile_name()
    if profile == THOROUGH_PROFILE:
        return full * _TIMES
    return max(1, full // _SHARE) if profile == FAST_PROFILE else full

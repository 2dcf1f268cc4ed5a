"""Which release of this project runs."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "capsule-server"


def release() -> str:
    """The version of this distribution; `unknown` where it runs without being installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"

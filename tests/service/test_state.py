from pathlib import Path
from typing import cast

import pytest

from service.desk.desk import Desk
from service.errors import Unavailable
from service.metrics import Metrics
from service.registry.registry import Registry
from service.state import Live, Warm
from tests.support.edge import FACTS, EdgeEngine, settings_for


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(settings_for(tmp_path), Metrics(tasks=1))


@pytest.fixture
def warm() -> Warm:
    # The registry plays no part in this.
    return Warm(EdgeEngine(), cast(Registry, None), FACTS, cast(Desk, None))


def refusal(live: Live) -> str:
    with pytest.raises(Unavailable) as caught:
        live.require_warm()
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 0
    return caught.value.code


def test_nothing_is_served_before_all_is_there(live: Live) -> None:
    assert refusal(live) == "warming"
    live.require_alive()


def test_once_open_it_serves(live: Live, warm: Warm) -> None:
    live.open(warm)
    assert live.require_warm() is warm
    live.require_alive()


def test_nothing_is_served_on_the_way_out(live: Live, warm: Warm) -> None:
    live.open(warm)
    live.drain()
    assert refusal(live) == "draining"
    live.require_alive()


def test_a_server_told_to_stop_while_warming_never_opens(live: Live, warm: Warm) -> None:
    live.drain()
    live.open(warm)
    assert refusal(live) == "draining"


def test_a_dead_model_fails_both_probes(live: Live, warm: Warm) -> None:
    live.open(warm)
    cast(EdgeEngine, warm.engine).healthy = False
    assert refusal(live) == "engine_stopped"
    with pytest.raises(Unavailable):
        live.require_alive()

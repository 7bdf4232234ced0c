from perseid.embedded.restarts import DELAYS_S, HEALTHY_AFTER_S, delay_s, early_deaths


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    delays = [delay_s(deaths) for deaths in range(1, 20)]
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert delays[-1] == max(DELAYS_S)


def test_a_long_life_resets_the_restart_count() -> None:
    deaths = 0
    for _ in range(5):
        deaths = early_deaths(deaths, 0.1)
    assert deaths == 5
    assert early_deaths(deaths, HEALTHY_AFTER_S) == 1

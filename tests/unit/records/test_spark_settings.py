"""Which settings of Spark a deployment passes on."""

from __future__ import annotations

import pytest

from perseid.errors import UsageError
from perseid.records import spark_settings
from perseid.worker.spark.session import SETTINGS


def test_settings_are_separated_by_spaces() -> None:
    text = " spark.ui.enabled=true  spark.executor.memory=4g spark.ui.filters= "
    assert spark_settings.parse(text) == {
        "spark.ui.enabled": "true", "spark.executor.memory": "4g", "spark.ui.filters": ""
    }  # fmt: skip
    assert spark_settings.parse("") == {}


@pytest.mark.parametrize(
    "text", ["spark.ui.enabled", "ui.enabled=true", "spark.ui.a=1 spark.ui.a=2", "spark=1"]
)
def test_what_is_no_list_of_settings_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected different settings .* spark.ui.enabled=true"):
        spark_settings.parse(text)


@pytest.mark.parametrize(
    "name",
    ["spark.python.daemon.module", "spark.speculation", "spark.plugins", "spark.jars",
     "spark.sql.session.timeZone", "spark.ui"],
)  # fmt: skip
def test_a_setting_that_perseid_relies_on_or_that_runs_code_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is not passed on.*spark\.ui\.\*"):
        spark_settings.parse(f"{name}=x")


@pytest.mark.parametrize(
    "name", ["spark.ui.keyPassword", "spark.authenticate.secret", "spark.kubernetes.oauthToken"]
)
def test_secrets_are_refused_without_their_value(name: str) -> None:
    with pytest.raises(UsageError, match=r"spark-defaults\.conf") as raised:
        spark_settings.parse(f"{name}=hunter2")
    assert "hunter2" not in str(raised.value)


def test_of_the_settings_of_perseid_only_views_may_be_changed() -> None:
    def may_change(name: str) -> bool:
        try:
            return bool(spark_settings.checked({name: ""}))
        except UsageError:
            return False

    views = ("spark.ui.", "spark.sql.streaming.metricsEnabled", "spark.sql.streaming.numRecent")
    changeable = [name for name in SETTINGS if may_change(name)]
    assert changeable == [name for name in SETTINGS if name.startswith(views)]
    assert changeable

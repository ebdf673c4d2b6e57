"""Sign-in: asked for where it is configured, and an unreadable configuration never opens the app."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

APP = str(Path(__file__).resolve().parents[1] / "app.py")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("HBMLEDGER_LAKE", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    return AppTest.from_file(APP, default_timeout=30)


def test_without_a_configuration_the_app_is_open(app: AppTest) -> None:
    assert app.run().file_uploader


def test_other_secrets_ask_for_no_sign_in(app: AppTest) -> None:
    app.secrets["token"] = "x"
    assert app.run().file_uploader


def test_a_configured_app_shows_nothing_before_sign_in(app: AppTest) -> None:
    app.secrets["auth"] = {"redirect_uri": "http://127.0.0.1:8501/oauth2callback", "cookie_secret": "x", "client_id": "x", "client_secret": "x",
                           "server_metadata_url": "http://127.0.0.1:1/none"}
    app.run()
    assert not app.exception
    assert [button.label for button in app.button] == ["Sign in"]
    assert not app.file_uploader
    assert not app.dataframe


def test_secrets_that_cannot_be_read_close_the_app(app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit import config

    (tmp_path / "secrets.toml").write_text("[auth\n")
    options = config.get_option
    monkeypatch.setattr(config, "get_option", lambda key: [str(tmp_path / "secrets.toml")] if key == "secrets.files" else options(key))
    app.run()
    assert "secrets" in app.error[0].value
    assert not app.file_uploader

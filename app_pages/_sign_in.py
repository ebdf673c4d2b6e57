"""Sign-in by OpenID Connect, where the operator configured it: Streamlit's own `st.login`, with an `[auth]` section in `.streamlit/secrets.toml`.

Without that section whoever reaches the app may use it. A file of secrets that cannot be read closes the app: it may have held the section.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app_pages._shared import safe


def require() -> None:
    """End the script where sign-in is configured and this browser has not signed in."""
    if not st.secrets.load_if_toml_exists():
        if any(Path(path).is_file() for path in st.config.get_option("secrets.files")):
            st.error("The file of secrets cannot be read, so nobody can be signed in.", icon=":material/lock:")
            st.caption("Mend .streamlit/secrets.toml (the server's log names the line), or take it away to serve without sign-in.")
            st.stop()
        return
    if "auth" not in st.secrets:
        return
    if st.user.get("is_logged_in"):
        _who()
        return
    st.title("HBM Ledger")
    if st.button("Sign in", type="primary", icon=":material/login:"):
        try:
            st.login()
        except st.errors.StreamlitAPIException as error:
            st.error(safe(str(error).strip().partition("\n")[0]), icon=":material/lock:")
            st.caption("The operator finds what sign-in needs in docs/security.md.")
    st.stop()


def _who() -> None:
    st.sidebar.text(str(st.user.get("name") or st.user.get("email") or "signed in"))
    if st.sidebar.button("Sign out", icon=":material/logout:", type="tertiary"):
        st.logout()

"""The frame of the web face: navigation and the chosen lake; each page is a file of `app_pages`.

Nothing runs on import: worker processes of an ingest load the main module again, and must find it empty.
"""

if __name__ == "__main__":
    import sys
    from pathlib import Path

    import streamlit as st

    from app_pages._garbage import collect_now_and_then
    from app_pages._lakes import choose, lake_root, own_root
    from app_pages._shared import safe, told_errors
    from app_pages._sign_in import require

    # The thread that sends what pages say waits for the interpreter after each message: 5 ms for each page in the making, unless told otherwise.
    sys.setswitchinterval(0.0005)
    st.set_page_config(page_title="HBM Ledger", page_icon=str(Path(__file__).with_name("app_pages") / "icon.svg"), layout="wide")
    # Streamlit writes white on any primary colour, the light one of the dark theme too.
    st.html("<style>[data-testid^=stBaseButton-primary] p {color: light-dark(white, #0d1b26)}</style>")
    require()
    page = st.navigation({
        "": [st.Page("app_pages/start.py", title="Start", icon=":material/upload_file:", default=True)],
        "Run": [
            st.Page("app_pages/overview.py", title="Overview", icon=":material/grid_view:"),
            st.Page("app_pages/findings.py", title="Findings", icon=":material/checklist:"),
            st.Page("app_pages/ledger.py", title="Ledger", icon=":material/account_balance:"),
            st.Page("app_pages/steps.py", title="Steps", icon=":material/stairs:"),
            st.Page("app_pages/theory.py", title="Theory", icon=":material/function:"),
            st.Page("app_pages/snapshot.py", title="Snapshot", icon=":material/photo_camera:"),
            st.Page("app_pages/plan.py", title="Plan", icon=":material/tune:"),
            st.Page("app_pages/communication.py", title="Communication", icon=":material/cell_tower:"),
            st.Page("app_pages/rejects.py", title="Rejects", icon=":material/rule:"),
        ],
        "Lake": [
            st.Page("app_pages/fleet.py", title="Fleet", icon=":material/stacked_line_chart:"),
            st.Page("app_pages/compare.py", title="Compare", icon=":material/compare_arrows:"),
            st.Page("app_pages/sql.py", title="SQL", icon=":material/database:"),
            st.Page("app_pages/settings.py", title="Settings", icon=":material/settings:"),
            st.Page("app_pages/glossary.py", title="Glossary", icon=":material/menu_book:"),
        ],
    }, expanded=True)
    try:
        with told_errors():
            choose()
            st.sidebar.caption("Seen by this session only" if lake_root() == own_root() else f"Lake {safe(lake_root())}")
            page.run()
    finally:
        collect_now_and_then()

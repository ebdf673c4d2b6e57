"""One way by which every page shows a picture: the chart, what was thinned out of it, and a box to keep it: PNG, SVG, its data as CSV or Parquet.

Streamlit strips the action menu of Vega-Embed from a chart (its links would lead to an editor on the internet), and its own toolbar makes a PNG
only. Both pictures are taken here from the SVG that the browser has drawn, inside the page: nothing is sent anywhere, and no renderer is
needed on the server. Data is made when it is asked for, so that a page does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import streamlit as st

from analysis.charts.picture import Chart, Picture, table_of
from analysis.query.ask import Answer
from analysis.query.export import csv_for_spreadsheets, parquet

Row = Mapping[str, Any]
_INNER = ("gib", "text", "order", "position", "place", "label", "ink")
"""Columns that only the drawing needs: bytes tell the same."""
_DRAWN = {"usermeta": {"embedOptions": {"renderer": "svg"}}}
"""Always as SVG: a canvas could not be kept as one, and a chart has few enough marks."""


class _Drawn:
    """A chart as Streamlit asks for it. It is not checked against Vega-Lite's schema for each reader, which takes as long again: tests do."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart

    def to_dict(self) -> dict[str, Any]:
        """The specification."""
        return {**self._chart.to_dict(validate=False), **_DRAWN}


_BUTTONS = """
<div role="group" aria-label="Keep the picture"><button type="button" data-as="png">PNG</button><button type="button" data-as="svg">SVG</button></div>
"""
_STYLE = """
div { display: flex; gap: .5rem; }
button { font: inherit; color: inherit; background: transparent; border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius);
  padding: .3rem .8rem; cursor: pointer; }
button:hover, button:focus-visible { border-color: var(--st-primary-color); color: var(--st-primary-color); }
"""
_SCRIPT = r"""
export default function ({ data, parentElement }) {
  const drawn = () => document.querySelector(`.st-key-${data.picture} [data-testid="stVegaLiteChart"] svg.marks`);
  const kept = (blob, kind) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${data.name}.${kind}`;
    parentElement.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const copied = (svg) => {
    const copy = svg.cloneNode(true);
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    paper.setAttribute("width", "100%");
    paper.setAttribute("height", "100%");
    paper.setAttribute("fill", getComputedStyle(parentElement.host ?? parentElement).getPropertyValue("--st-background-color") || "#ffffff");
    copy.prepend(paper);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const text = new XMLSerializer().serializeToString(copy).replace(/url\((?:&quot;)?[^"]*?#([\w-]+)(?:&quot;)?\)/g, "url(#$1)");
    return new Blob([text], { type: "image/svg+xml" });
  };
  const painted = (svg, blob) => {
    const image = new Image();
    const box = svg.getBoundingClientRect();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [Math.round(2 * box.width), Math.round(2 * box.height)];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((made) => kept(made, "png"), "image/png");
    };
    const reader = new FileReader();
    reader.onload = () => { image.src = reader.result; };
    reader.readAsDataURL(blob);
  };
  for (const button of parentElement.querySelectorAll("button")) {
    button.onclick = () => {
      const svg = drawn();
      if (!svg) return;
      const blob = copied(svg);
      if (button.dataset.as === "svg") kept(blob, "svg"); else painted(svg, blob);
    };
  }
}
"""


def picture(found: Picture, name: str, **more: Any) -> Any:
    """Show a picture and what was thinned out of it, with the box to keep it; `name` is unique on its page and names the files.

    What else is given goes to the chart; what the chart answers is returned.
    """
    holder = f"picture-{name}"
    with st.container(key=holder, gap="small"):
        answer = st.altair_chart(cast(Any, _Drawn(found.chart)), alt=found.alt, **more)
        with st.container(horizontal=True, vertical_alignment="center"):
            with st.popover("Keep", icon=":material/download:", type="tertiary", help="This picture as PNG or SVG, its data as CSV or Parquet"):
                _buttons()(data={"picture": holder, "name": name}, key=f"{holder}-as")
                _files(name, lambda: [_told(row) for row in found.rows])
            if found.said:
                st.caption(found.said)
    return answer


def kept_rows(name: str, rows: Callable[[], Sequence[Row]]) -> None:
    """The box to keep a table: CSV, or Parquet with the types kept; `rows` is asked when a file is wanted."""
    with st.popover("Keep", icon=":material/download:", type="tertiary", help="These rows as CSV or Parquet"):
        _files(name, rows)


def _files(name: str, rows: Callable[[], Sequence[Row]]) -> None:
    """Both kinds of file, made when a reader asks for one; no rerun of the page for it."""
    def answer() -> Answer:
        return Answer(table_of(rows()), capped=False)

    with st.container(horizontal=True):
        st.download_button("CSV", lambda: csv_for_spreadsheets(answer()), f"{name}.csv", "text/csv", key=f"{name}-csv",
                           on_click="ignore")
        st.download_button("Parquet", lambda: parquet(answer()), f"{name}.parquet", "application/vnd.apache.parquet",
                           key=f"{name}-parquet", on_click="ignore")


def _told(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _INNER or "bytes" not in row}


@st.cache_resource(show_spinner=False)
def _buttons() -> Any:
    """The two buttons, known to the server once."""
    return st.components.v2.component("hbmledger_keep_picture", html=_BUTTONS, css=_STYLE, js=_SCRIPT)

"""A browser's side of Streamlit's protocol without a browser: open a page of a running app, click, upload, and read what came.

The messages are Streamlit's own, from the installed package, over the websocket that the browser uses: the server cannot tell the difference, and
twenty of these cost what one browser would. What a browser does with the answer (painting) is not in it.
"""

from __future__ import annotations

import time
import urllib.parse
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect

SECONDS = 600.0
"""The longest wait for one page: of twenty readers at once on a busy machine, the last one's first."""
_TEXTS = {"markdown": "body", "text": "body", "alert": "body", "heading": "body", "code": "code_text", "metric": "body", "page_link": "label",
          "button": "label", "exception": "message"}


@dataclass(slots=True)
class Page:
    """What one run of the script sent: its elements by place, the bytes of all messages by kind, and how long it took to the end."""

    seconds: float = 0.0
    elements: dict[tuple[int, ...], Element] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def total_bytes(self) -> int:
        """All that was sent."""
        return sum(self.kinds.values())

    @property
    def text(self) -> str:
        """Every text of the page, without the escapes of Markdown."""
        return "\n".join(self._texts()).replace("\\", "")

    @property
    def raw(self) -> bytes:
        """Everything that the browser was given to show, cells of tables as well."""
        return b"\n".join(one.SerializeToString() for one in self.elements.values())

    @property
    def faults(self) -> list[str]:
        """Exceptions that the page shows."""
        return [one.exception.message for one in self.elements.values() if one.WhichOneof("type") == "exception"]

    @property
    def errors(self) -> list[str]:
        """Messages of error that the page shows."""
        alerts = [one.alert for one in self.elements.values() if one.WhichOneof("type") == "alert"]
        return [one.body.replace("\\", "") for one in alerts if one.format == one.ERROR]

    def of(self, kind: str) -> list[Any]:
        """The elements of a kind."""
        return [getattr(one, kind) for one in self.elements.values() if one.WhichOneof("type") == kind]

    def _texts(self) -> Iterator[str]:
        for one in self.elements.values():
            kind = str(one.WhichOneof("type"))
            if kind in _TEXTS:
                yield str(getattr(getattr(one, kind), _TEXTS[kind]))
            if kind == "metric":
                yield f"{one.metric.label}: {one.metric.body}"


class Session:
    """One reader of the app."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._cookie, self._token = self._cookies()
        self._ends = ExitStack()
        self._pages: dict[str, str] = {}
        self._session_id = ""
        self._page, self.query = "", ""
        self.widgets: dict[str, WidgetState] = {}
        self.last = Page()
        self._began = 0.0

    def __enter__(self) -> Session:
        self._socket: ClientConnection = self._ends.enter_context(connect(
            self.address.replace("http", "ws", 1) + "/_stcore/stream", max_size=None, compression=None, open_timeout=60,
            additional_headers={"Cookie": self._cookie}, origin=self.address))  # type: ignore[arg-type]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.close()

    def open(self, page: str = "", **query: str) -> Page:
        """Go to a page as a link does. The name is the one of the address; widgets of other pages are forgotten, as a browser forgets them."""
        self.begin(page, **query)
        return self._end()

    def begin(self, page: str = "", **query: str) -> None:
        """Ask for a page without waiting for it."""
        self._page, self.query, self.widgets = page, urllib.parse.urlencode(query), {}
        self._ask()

    def click(self, label: str) -> Page:
        """Press a button."""
        found = next(one for one in self.last.of("button") if one.label == label)
        return self._run(WidgetState(id=found.id, trigger_value=True))

    def put(self, kind: str, label: str, value: str | bool) -> None:
        """Fill a field; a run of the script takes it."""
        found = next(one for one in self.last.of(kind) if one.label == label)
        self.widgets[found.id] = WidgetState(id=found.id, **{"bool_value" if isinstance(value, bool) else "string_value": value})

    def upload(self, name: str, content: bytes) -> None:
        """Give a file to the page's first field for files."""
        request = uuid.uuid4().hex
        asked = BackMsg()
        asked.file_urls_request.request_id = request
        asked.file_urls_request.file_names.append(name)
        asked.file_urls_request.session_id = self._session_id
        self._socket.send(asked.SerializeToString())
        answer = next(one for one in self._messages() if one.WhichOneof("type") == "file_urls_response").file_urls_response
        urls = answer.file_urls[0]
        self._sent(urls.upload_url, name, content)
        state = WidgetState(id=self.last.of("file_uploader")[0].id)
        told = state.file_uploader_state_value.uploaded_file_info.add(name=name, size=len(content), file_id=urls.file_id)
        told.file_urls.CopyFrom(urls)
        self.widgets[state.id] = state

    def again(self) -> Page:
        """Run the page's script once more."""
        return self._run()

    def until(self, words: str) -> Page:
        """Run the page's script until it says so, as the page does by itself while files are read."""
        limit = time.monotonic() + SECONDS
        while words not in self.last.text:
            assert time.monotonic() < limit, f"in vain waited for {words!r}; the page says: {self.last.text}"
            time.sleep(0.2)
            self.again()
        return self.last

    def _run(self, trigger: WidgetState | None = None) -> Page:
        self._ask(trigger)
        return self._end()

    def _ask(self, trigger: WidgetState | None = None) -> None:
        message = BackMsg()
        message.rerun_script.query_string = self.query
        if self._page in self._pages:
            message.rerun_script.page_script_hash = self._pages[self._page]
        else:
            message.rerun_script.page_name = self._page
        message.rerun_script.widget_states.widgets.extend([*self.widgets.values(), *([trigger] if trigger else [])])
        self._began = time.monotonic()
        self._socket.send(message.SerializeToString())

    def _end(self) -> Page:
        self.last = self._answer()
        self.last.seconds = time.monotonic() - self._began
        return self.last

    def _answer(self) -> Page:
        """What comes until the script has ended; one that asks to be run again goes on."""
        page = Page()
        for message in self._messages():
            kind = str(message.WhichOneof("type"))
            if kind == "new_session":
                self._session_id = message.new_session.initialize.session_id
                page.elements.clear()
            elif kind == "navigation":
                self._pages = {one.url_pathname: one.page_script_hash for one in message.navigation.app_pages}
                self._page = next((name for name, own in self._pages.items() if own == message.navigation.page_script_hash), self._page)
            elif kind == "page_info_changed":
                self.query = message.page_info_changed.query_string
            elif kind == "delta":
                kind = self._taken(page, message)
            page.kinds[kind] += message.ByteSize()
            if kind == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                return page
        raise AssertionError("the server closed the connection before the page was whole")

    def _taken(self, page: Page, message: ForwardMsg) -> str:
        place = tuple(message.metadata.delta_path)
        if message.delta.WhichOneof("type") != "new_element":
            return "block"
        page.elements[place] = message.delta.new_element
        return str(message.delta.new_element.WhichOneof("type"))

    def _messages(self) -> Iterator[ForwardMsg]:
        limit = time.monotonic() + SECONDS
        while (left := limit - time.monotonic()) > 0:
            data = self._socket.recv(timeout=left)
            assert isinstance(data, bytes)
            yield ForwardMsg.FromString(data)
        raise AssertionError(f"no end of the page within {SECONDS:g} s")

    def _cookies(self) -> tuple[str, str]:
        """The cookie of the server and the token that has to come with it."""
        with urllib.request.urlopen(f"{self.address}/_stcore/health", timeout=60) as answer:
            given = [value.partition(";")[0] for value in answer.headers.get_all("Set-Cookie", [])]
        cookie = next((one for one in given if one.startswith("_streamlit_xsrf=")), "")
        return cookie, cookie.partition("=")[2]

    def _sent(self, url: str, name: str, content: bytes) -> None:
        edge = uuid.uuid4().hex
        body = b"".join((f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                         "Content-Type: application/octet-stream\r\n\r\n".encode(), content, f"\r\n--{edge}--\r\n".encode()))
        request = urllib.request.Request(self.address + url, body, method="PUT", headers={
            "Content-Type": f"multipart/form-data; boundary={edge}", "Cookie": self._cookie, "X-Xsrftoken": self._token, "Origin": self.address})
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status in (200, 204)

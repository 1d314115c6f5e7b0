"""Debian's Firefox, driven over WebDriver BiDi.

Playwright drives only a Firefox of its own, which no package has; Selenium needs geckodriver, which Debian
does not have either. Firefox speaks WebDriver BiDi by itself: JSON over a websocket. Only what the tests use
is here. Every wait is a promise of the page, so that a test asks once and does not poll.
"""

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.support.limits import HANG_S

Json = dict[str, Any]
FileReader = Callable[[str], tuple[bytes, Mapping[str, str]]]  # from an address to a body and its headers

PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.dns.disablePrefetch": True,
    # a name that is not on this machine is not looked up
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.no_proxies_on": "127.0.0.1,localhost",
    "network.proxy.allow_hijacking_localhost": False,
    "toolkit.telemetry.enabled": False,
}
# The keys that WebDriver names by a character of the private use area.
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Space": " "}

WAIT = """new Promise((resolve) => {
  const look = () => ((HOLDS)() ? resolve(true) : setTimeout(look, 20));
  look();
})"""


class FirefoxError(Exception):
    """Firefox refused a command, or a script failed; the message is what it said."""


class Firefox:
    """A browser with one websocket. `files` answers requests below `/reader/` instead of the server."""

    def __init__(self, socket: Connection, files: FileReader) -> None:
        self._socket = socket
        self._files = files
        self._number = 0
        self.errors: list[str] = []  # that pages wrote to the console
        self.run("session.new", {"capabilities": {}})
        self.run("session.subscribe", {"events": ["log.entryAdded", "network.beforeRequestSent"]})

    def intercept(self, port: int, paths: list[str]) -> None:
        """Answer these paths of a server from files."""
        origin = {"type": "pattern", "protocol": "http", "hostname": "127.0.0.1", "port": str(port)}
        patterns = [origin | {"pathname": path} for path in paths]
        self.run("network.addIntercept", {"phases": ["beforeRequestSent"], "urlPatterns": patterns})

    def run(self, method: str, params: Json) -> Json:
        """Run a command and return its result. Events that come meanwhile are handled."""
        number = self._send(method, params)
        while True:
            message: Json = json.loads(self._socket.recv(timeout=HANG_S))
            if message.get("type") == "event":
                self._on_event(message["method"], message["params"])
            elif message.get("id") == number:
                if message["type"] == "error":
                    raise FirefoxError(f"{method}: {message['error']}: {message['message']}")
                return dict(message["result"])

    def _send(self, method: str, params: Json) -> int:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        return self._number

    def _on_event(self, method: str, params: Json) -> None:
        if method == "log.entryAdded" and params["level"] == "error":
            self.errors.append(str(params["text"]))
        elif method == "network.beforeRequestSent" and params["isBlocked"]:
            body, headers = self._files(params["request"]["url"])
            answer = {
                "request": params["request"]["request"],
                "statusCode": 200,
                "headers": [
                    {"name": name, "value": {"type": "string", "value": value}}
                    for name, value in headers.items()
                ],
                "body": {"type": "base64", "value": base64.b64encode(body).decode()},
            }
            self._send("network.provideResponse", answer)  # its result is not needed

    def open(self, url: str = "about:blank") -> "Tab":
        tab = Tab(self, self.run("browsingContext.create", {"type": "tab"})["context"])
        tab.goto(url)
        return tab

    def clear_cookies(self) -> None:
        self.run("storage.deleteCookies", {})


class Tab:
    """A page."""

    def __init__(self, browser: Firefox, context: str) -> None:
        self._browser = browser
        self._context = context

    def goto(self, url: str) -> None:
        self._browser.run(
            "browsingContext.navigate", {"context": self._context, "url": url, "wait": "complete"}
        )

    def reload(self) -> None:
        self._browser.run("browsingContext.reload", {"context": self._context, "wait": "complete"})

    def close(self) -> None:
        self._browser.run("browsingContext.close", {"context": self._context})

    def resize(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self._browser.run("browsingContext.setViewport", {"context": self._context, "viewport": viewport})

    def evaluate(self, script: str, *arguments: Any) -> Any:
        """Return the value of an expression, or of a function with arguments, as JSON has it."""
        called = f"({script})({', '.join(map(json.dumps, arguments))})" if arguments else f"({script})"
        expression = f"(async () => JSON.stringify(await {called}) ?? 'null')()"
        params = {"expression": expression, "awaitPromise": True, "target": {"context": self._context}}
        answer = self._browser.run("script.evaluate", params)
        if answer["type"] == "exception":
            raise FirefoxError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def wait_for(self, holds: str) -> None:
        """Wait until a function of the page returns something true. A navigation starts the wait again."""
        while True:
            try:
                self.evaluate(WAIT.replace("HOLDS", holds))
            except FirefoxError as error:
                if "discarded" not in str(error) and "destroyed" not in str(error):
                    raise
            else:
                return

    def expect_text(self, selector: str, text: str) -> None:
        """Wait until an element has a text; selectors look into shadow roots, too."""
        self.wait_for(f"() => {FIND}({json.dumps(selector)})?.textContent.includes({json.dumps(text)})")

    def focus(self, selector: str) -> None:
        self.wait_for(f"() => {FIND}({json.dumps(selector)})")
        self.evaluate(f"(selector) => {FIND}(selector).focus()", selector)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that has a text."""
        find = (
            f"{FIND_ALL}({json.dumps(selector)}).find((one) => one.textContent.includes({json.dumps(text)}))"
        )
        self.wait_for(f"() => {find} && !{find}.disabled")
        self.evaluate(f"{find}.click()")

    def press(self, *keys: str) -> None:
        """Press keys as a person does: names of `KEYS`, or texts."""
        typed = "".join(KEYS.get(key, key) for key in keys)
        actions = [{"type": way, "value": one} for one in typed for way in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self._browser.run("input.performActions", {"context": self._context, "actions": [keyboard]})

    def screenshot(self, path: Path) -> None:
        taken = self._browser.run("browsingContext.captureScreenshot", {"context": self._context})
        path.write_bytes(base64.b64decode(taken["data"]))


# All elements for a selector, also those below open shadow roots.
FIND_ALL = """((selector) => {
  const below = (root) => [
    ...root.querySelectorAll(selector),
    ...[...root.querySelectorAll("*")].flatMap(({ shadowRoot }) => (shadowRoot ? below(shadowRoot) : [])),
  ];
  return below(document);
})"""
FIND = f"((selector) => {FIND_ALL}(selector)[0])"


@contextmanager
def run_firefox(program: str, folder: Path, files: FileReader) -> Iterator[Firefox]:
    """Run a browser with a new profile in a folder, closed off from every network but loopback."""
    profile = folder / "profile"
    profile.mkdir()
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0"]
    # Firefox refuses a home folder of another user.
    environment = os.environ | {"HOME": str(folder)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = next(
            found[1] for line in process.stderr if (found := re.search(r"BiDi listening on (ws://\S+)", line))
        )
        with connect(f"{address}/session", max_size=None, open_timeout=HANG_S) as socket:
            yield Firefox(socket, files)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()

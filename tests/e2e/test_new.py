"""What `turnlog new` makes, served as its README says."""

import subprocess
import sys
from pathlib import Path

from tests.e2e.examples import bodies, over, watch
from tests.e2e.harness import TURNLOG, running
from tests.support.limits import HANG_S


def test_a_new_project_answers(tmp_path: Path) -> None:
    folder = tmp_path / "corner-shop"
    subprocess.run([TURNLOG, "new", str(folder)], check=True, stdout=subprocess.DEVNULL, timeout=HANG_S)
    there = f"import os, turnlog.cli; os.chdir({str(folder)!r}); turnlog.cli.main()"
    with running("corner_shop:app", tmp_path, program=(sys.executable, "-c", there)) as server:
        assert [app["tries"] for app in server.get("/api/apps")[1]["apps"]] == [["tea", "marzipan"]]
        session = server.session()
        events = watch(server, session, "tea", over)
        assert bodies(events, "corner_shop.add_item") == [{"item": "tea", "euro": 3}]
        assert bodies(events, "assistant.message")[-1]["text"] == "tea is 3 euro. It is on your list."
        answer = server.get(f"/api/state?session={session}")[1]
        assert answer["state"] == {"list": ["tea"], "euro": 3}

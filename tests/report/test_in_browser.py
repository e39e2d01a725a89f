"""The page in a browser: every view opens at desk and phone width, in light and dark, and runs no script but its own."""

import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.fake_run import make_run
from tests.report.test_report import DOUBLE, HOSTILE, evaluate, hostile, made

__all__ = ["hostile", "made"]

BROWSER = os.environ.get("CODEA1_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome") or ""
PATIENCE_MS = 120_000
# The page is ours and asks for nothing; a container has no place for the browser's own sandbox.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]

# The view is drawn anew and measured before the browser's next frame, so before its charts are told their width, too.
WIDER = """async () => {
    dispatchEvent(new Event("hashchange"));
    await new Promise((drawn) => queueMicrotask(drawn));
    return document.documentElement.scrollWidth > innerWidth;
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no browser: `apt-get install chromium`, or name one in CODEA1_BROWSER"),
]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_view_opens_and_a_click_leads_through_the_page(
    hostile, made, tmp_path: Path, width: int, scheme: str
) -> None:
    from playwright.sync_api import expect, sync_playwright

    other = make_run(hostile.path.parent, "other", steps=2, total=5)
    evaluate(other, 0, 2)
    evaluate(other, 2, 1)
    made("first", "other")
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS, timeout=PATIENCE_MS)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("request", lambda request: None if request.url.startswith("file:") else faults.append(request.url))
        page.goto(f"file://{tmp_path}/page.html")
        view = page.locator("#view")

        def opened(name: str) -> None:
            expect(view).to_have_attribute("data-view", name)
            assert not page.evaluate(WIDER), f"{name} is wider than the window"

        opened("overview")
        expect(view).to_contain_text("finished at step 3 of 3")
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        page.click("#theme")
        bar = page.locator("nav").bounding_box()
        assert bar is not None
        assert bar["height"] < 45, "the views stand on several lines"
        page.click("nav >> text=curves")
        opened("curves")
        expect(view.locator("canvas").first).to_be_visible()
        page.check("text=smooth")
        page.uncheck("text=other")
        page.click("summary")
        page.click("nav >> text=compare")
        opened("compare")
        expect(view).to_contain_text("other (after step 2)")
        page.select_option("select[aria-label=from]", "first before")
        page.select_option("select[aria-label=to]", "first after")
        expect(page.locator("#score")).to_have_text("1 won, 0 lost, 0 alike of 1 problem")
        page.click(f"#view a:has-text('{DOUBLE}')")
        opened("evaluated")
        page.click("summary:has-text('first, step 3: 3 of 4 solutions pass')")
        expect(view).to_contain_text(f"answer 1 {HOSTILE}")
        page.click("nav >> text=problems")
        opened("problems")
        page.fill("input[type=search]", "double")
        page.click(f"#view a:has-text('{DOUBLE}')")
        opened("problem")
        expect(view).to_contain_text("Mistake Book: 2 live tests")
        page.click("nav >> text=rollouts")
        opened("rollouts")
        expect(page.locator("#found > p")).to_contain_text("7 of 7 candidates")
        for label, count in (("exposed", 2), ("false alarms", 1), ("unscored", 1), ("does not load", 1)):
            page.check(f"text={label}")
            expect(page.locator("#found > p")).to_contain_text(f"{count} of 7 candidates")
            page.uncheck(f"text={label}")
        page.fill("input[type=search]", "onerror")
        expect(page.locator("#found > p")).to_contain_text("3 of 7 candidates")
        page.click("#found a")
        opened("rollout")
        expect(view).to_contain_text(HOSTILE)
        page.goto(f"file://{tmp_path}/page.html#/rollout/0/{quote(DOUBLE, safe='')}/2/0")
        expect(view).to_contain_text("wrongly: 5")
        page.goto(f"file://{tmp_path}/page.html#/rollout/0/{quote(HOSTILE, safe='')}/2/0")
        opened("rollout")
        expect(view).to_contain_text("does not load")
        assert page.evaluate("window.hit") is None
        assert page.locator("img").count() == 0
        browser.close()
    assert faults == []

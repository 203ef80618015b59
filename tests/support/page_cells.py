"""The cells of a job's ranks, as a mouse finds them: by moving over them and reading."""

from __future__ import annotations

import json

from tests.support.browser import Browser

FIND = """(async () => {{
  const node = document.querySelector('#jobs .cells'), tip = node.querySelector('.tip');
  const canvas = node.querySelector('canvas');
  const move = (x, y) => {{
    const {{ left, top }} = node.getBoundingClientRect();
    const at = {{ clientX: left + x, clientY: top + y, bubbles: true }};
    node.dispatchEvent(new PointerEvent('pointermove', at));
  }};
  for (let y = 5; y < canvas.clientHeight; y += 7) {{
    for (let x = 5; x < canvas.clientWidth; x += 7) {{
      move(x, y);
      if (node.classList.contains('pointed') && tip.textContent.startsWith({text})) return [x, y];
    }}
  }}
  return null;
}})()"""
PIXEL = """(() => {{
  const canvas = document.querySelector('#jobs .cells canvas');
  const ratio = canvas.width / canvas.clientWidth, context = canvas.getContext('2d');
  const drawn = context.getImageData({x} * ratio, {y} * ratio, 1, 1).data;
  return '#' + [...drawn.slice(0, 3)].map((part) => part.toString(16).padStart(2, '0')).join('');
}})()"""
BESIDE_NUMBER = """(() => {
  const [cell, canvas] = ['.cells .at', '.cells canvas'].map((name) =>
    document.querySelector(`#jobs ${name}`).getBoundingClientRect());
  return [cell.left + 3.5 - canvas.left, cell.top + cell.height / 2 - canvas.top];
})()"""


def point(browser: Browser, text: str) -> tuple[float, float]:
    """Move to the cell that is told with that text; returns where in the picture that is."""
    found = browser.run(FIND.format(text=json.dumps(text)))
    assert found, f"no cell says {text}"
    return found[0], found[1]


def click(browser: Browser, text: str) -> None:
    """Click the cell that is told with that text."""
    point(browser, text)
    browser.run("document.querySelector('#jobs .cells .at').click()")


def colour(browser: Browser, text: str) -> str:
    """What that cell is filled with, as ``#rrggbb``."""
    point(browser, text)
    x, y = browser.run(BESIDE_NUMBER)
    drawn: str = browser.run(PIXEL.format(x=x, y=y))
    return drawn

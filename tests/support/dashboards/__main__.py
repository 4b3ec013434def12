"""Writes the dashboards: `make dashboards`."""

from support.dashboards.files import FOLDER, written

for name, text in written().items():
    (FOLDER / name).write_text(text)

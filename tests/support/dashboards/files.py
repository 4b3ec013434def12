"""The files of the dashboards, in the manager's chart."""

from support.dashboards.fleet import FLEET
from support.dashboards.grafana import to_json
from support.dashboards.queues import QUEUES
from support.helm import CHARTS

FOLDER = CHARTS / "slicebus-manager" / "files" / "dashboards"
_BOARDS = {"fleet": FLEET, "queues": QUEUES}


def written() -> dict[str, str]:
    """The JSON of each dashboard, by the name of its file."""
    return {
        f"{name}.json": to_json(board, (other for other in _BOARDS.values() if other is not board))
        for name, board in _BOARDS.items()
    }

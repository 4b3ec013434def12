"""The names of the manager's tables, by which commands refer to them. `ManagerStore` says what is in each."""

from enum import StrEnum


class ManagerTable(StrEnum):
    """Every table of the manager."""

    PUBLISHED = "published"
    LAST_STATUS = "last_status"
    LAST_HEARTBEAT = "last_heartbeat"
    UNCERTAIN = "uncertain"
    SETTINGS = "settings"
    REPORTED = "reported"
    NOTICES = "notices"
    WOULD_ADMIT = "would_admit"
    WAITS = "waits"
    REPORTED_PODS = "reported_pods"
    GIVEN_UP = "given_up"
    RECALLED = "recalled"
    DELETED = "deleted"
    UNSERVED = "unserved"
    DEFINITIONS = "definitions"
    HELD = "held"
    HEARD_EPOCHS = "heard_epochs"
    ADOPTED = "adopted"
    UNSHOWN_ENDS = "unshown_ends"
    REFUSED_REQUESTS = "refused_requests"
    ENDS = "ends"
    LATE = "late"

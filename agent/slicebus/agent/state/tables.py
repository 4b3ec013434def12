"""The names of the agent's tables, by which commands refer to them. `AgentStore` says what is in each."""

from enum import StrEnum


class AgentTable(StrEnum):
    """Every table of the agent."""

    PUBLISHED = "published"
    REPORTED = "reported"
    CONFIRMED_SUSPENDED = "confirmed_suspended"
    TOMBSTONES = "tombstones"
    ENDS_ORDERED = "ends_ordered"
    UNREPORTED = "unreported"
    DEPARTED = "departed"
    LEFT_REQUESTS = "left_requests"
    UNANSWERED = "unanswered"
    UNSERVED = "unserved"
    DEFINITIONS = "definitions"
    POLICY = "policy"
    NAMESPACES = "namespaces"
    SURPLUS = "surplus"
    WITHDRAWN = "withdrawn"
    NOTICED = "noticed"
    NOTICED_BY = "noticed_by"
    FINISHING = "finishing"
    REFUSED_PODS = "refused_pods"
    SETTINGS = "settings"
    UNSERVED_OBJECTS = "unserved_objects"
    FORBIDDEN_SCHEDULERS = "forbidden_schedulers"
    REFUSED_OBJECTS = "refused_objects"
    REFUSED_WRITES = "refused_writes"
    EDITED = "edited"
    POD_PROBLEMS = "pod_problems"

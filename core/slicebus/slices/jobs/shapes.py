"""The shapes of jobs: the parts of manifests and statuses that some code reads by name, as structs.

What a shape does not name is left alone. API servers check most of it, but a custom definition may let anything in, and
a message may say anything: `fit` types it before a decision sees it.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Counter = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Amounts = dict[str, str | int | float]
"""Quantities, which may still be none."""


class Shape(msgspec.Struct, rename="camel"):
    """The fields of an object that are read."""


class ConditionShape(Shape):
    """A condition of a status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    observed_generation: int | None = None


class PlainStatus(Shape):
    """What every kind may show."""

    conditions: list[ConditionShape] | None = None


class PlainSpec(Shape):
    """An object: a kind that types no more reads its manifests with care."""


class JobStatus(PlainStatus):
    """The status of a batch/v1 Job."""

    active: Counter = 0
    ready: Counter = 0
    terminating: Counter = 0
    succeeded: Counter = 0
    failed: Counter = 0
    start_time: str = ""
    completion_time: str = ""
    completed_indexes: str = ""
    failed_indexes: str = ""


class RayClusterStatus(PlainStatus):
    """The status of a RayCluster."""

    state: str | None = None
    reason: str | None = None
    ready_worker_replicas: Int32 | None = None
    available_worker_replicas: Int32 | None = None
    desired_worker_replicas: Int32 | None = None
    min_worker_replicas: Int32 | None = None
    max_worker_replicas: Int32 | None = None
    observed_generation: int | None = None
    endpoints: dict[str, str] | None = None
    head: dict[str, Any] | None = None
    state_transition_times: dict[str, str | None] | None = None


class RayJobStatus(PlainStatus):
    """The status of a RayJob."""

    ray_cluster_name: str = ""
    job_id: str | None = None
    job_status: str = ""
    job_deployment_status: str | None = None
    reason: str | None = None
    message: str = ""
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    observed_generation: int | None = None
    ray_cluster_status: RayClusterStatus | None = None


class _ServiceClusterStatus(Shape):
    ray_cluster_name: str | None = None
    application_statuses: dict[str, Any] | None = None
    ray_cluster_status: RayClusterStatus | None = None


class RayServiceStatus(PlainStatus):
    """The status of a RayService."""

    active_service_status: _ServiceClusterStatus | None = None
    pending_service_status: _ServiceClusterStatus | None = None
    service_status: str | None = None
    num_serve_endpoints: Int32 | None = None
    observed_generation: int | None = None


class _Resources(Shape):
    requests: Amounts = {}
    limits: Amounts = {}


class _Variable(Shape):
    name: str
    value: str = ""


class _Container(Shape):
    name: str
    image: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    env: list[_Variable] | None = None
    restart_policy: str = ""


class _Gate(Shape):
    name: str


class _Expression(Shape):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(Shape):
    match_expressions: list[_Expression] = []


class _Terms(Shape):
    node_selector_terms: list[_Term] = []


class _NodeAffinity(Shape):
    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(Shape):
    node_affinity: _NodeAffinity = msgspec.field(default_factory=_NodeAffinity)


class _Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _DrivenVolume(Shape):
    driver: str | None = None


class _Volume(Shape):
    csi: _DrivenVolume | None = None
    flex_volume: _DrivenVolume | None = None


class _PodSpec(Shape):
    containers: list[_Container]
    init_containers: list[_Container] = []
    scheduling_gates: list[_Gate] = []
    node_selector: dict[str, str] = {}
    tolerations: list[_Toleration] | None = None
    volumes: list[_Volume] | None = None
    affinity: _Affinity = msgspec.field(default_factory=_Affinity)
    resources: _Resources | None = None
    overhead: Amounts = {}
    restart_policy: str | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    service_account_name: str | None = None
    service_account: str | None = None
    scheduling_group: dict[str, Any] | None = None


class _PodMetadata(Shape):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class TemplateShape(Shape):
    """A PodTemplateSpec."""

    spec: _PodSpec
    metadata: _PodMetadata | None = None


class _SuccessRule(Shape):
    succeeded_indexes: str | None = None
    succeeded_count: Counter | None = None


class _SuccessPolicy(Shape):
    rules: list[_SuccessRule] | None = None


class JobSpec(Shape):
    """The spec of a batch/v1 Job."""

    template: TemplateShape
    parallelism: Counter = 1
    completions: Counter = 0
    completion_mode: str | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    max_failed_indexes: Counter | None = None
    success_policy: _SuccessPolicy | None = None


class _ServiceMetadata(_PodMetadata):
    name: str | None = None


class _ServiceSpec(Shape):
    type: str | None = None
    external_i_ps: list[str] | None = msgspec.field(default=None, name="externalIPs")


class _Service(Shape):
    metadata: _ServiceMetadata | None = None
    spec: _ServiceSpec | None = None


class _Group(Shape):
    template: TemplateShape
    labels: dict[str, str] | None = None
    resources: dict[str, Any] | None = None
    ray_start_params: dict[str, str] | None = None


class _HeadGroup(_Group):
    service_type: str | None = None
    enable_ingress: bool | None = None
    head_service: _Service | None = None


class _ScaleStrategy(Shape):
    workers_to_delete: list[str] | None = None


class _WorkerGroup(_Group, kw_only=True):
    group_name: str
    replicas: Int32 | None = None
    min_replicas: Int32 | None = None
    max_replicas: Int32 | None = None
    num_of_hosts: Int32 | None = None
    idle_timeout_seconds: Int32 | None = None
    priority: Int32 | None = None
    suspend: bool | None = None
    scale_strategy: _ScaleStrategy | None = None


class _AutoscalerOptions(Shape):
    version: str | None = None
    image: str | None = None
    env: list[_Variable] | None = None
    env_from: list[Any] | None = None
    resources: _Resources | None = None
    idle_timeout_seconds: Int32 | None = None
    upscaling_mode: str | None = None


class _Strategy(Shape):
    type: str | None = None


class _FaultTolerance(Shape):
    backend: str | None = None


class _Authentication(Shape):
    mode: str | None = None
    secret_name: str | None = None
    enable_k8s_token_auth: bool | None = msgspec.field(default=None, name="enableK8sTokenAuth")


class RayClusterSpec(Shape):
    """The spec of a RayCluster."""

    head_group_spec: _HeadGroup
    worker_group_specs: list[_WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: _AutoscalerOptions | None = None
    upgrade_strategy: _Strategy | None = None
    gcs_fault_tolerance_options: _FaultTolerance | None = None
    auth_options: _Authentication | None = None
    head_service_annotations: dict[str, str] | None = None
    ray_version: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class RayJobSpec(Shape):
    """The spec of a RayJob."""

    ray_cluster_spec: RayClusterSpec | None = None
    cluster_selector: dict[str, str] | None = None
    submission_mode: str | None = None
    submitter_pod_template: TemplateShape | None = None
    shutdown_after_job_finishes: bool | None = None
    ttl_seconds_after_finished: Int32 | None = None
    active_deadline_seconds: Int32 | None = None
    pre_running_deadline_seconds: Int32 | None = None
    backoff_limit: Int32 | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class _UpgradeOptions(Shape):
    max_surge_percent: Int32 = 100
    step_size_percent: Int32 | None = None
    interval_seconds: Int32 | None = None
    gateway_class_name: str | None = None


class _ServiceStrategy(_Strategy):
    cluster_upgrade_options: _UpgradeOptions | None = None


class RayServiceSpec(Shape):
    """The spec of a RayService."""

    ray_cluster_config: RayClusterSpec
    upgrade_strategy: _ServiceStrategy | None = None
    serve_service: _Service | None = None
    ray_cluster_deletion_delay_seconds: Int32 | None = None
    suspend: bool | None = None
    managed_by: str | None = None

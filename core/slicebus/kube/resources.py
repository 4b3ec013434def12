"""Names the resources that slicebus reads and writes, and where the API server serves them."""

from slicebus.slices.api.resource import Resource as Resource
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.jobs.raycluster import RayCluster
from slicebus.slices.jobs.rayjob import RayJob
from slicebus.slices.jobs.rayservice import RayService

GONE = ""
"""In place of the UID of a definition: it has gone, and every object with it."""

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
LIMITRANGES = Resource("", "v1", "limitranges", "LimitRange")
RUNTIMECLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
RESOURCECLAIMTEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
USEREXTRAS = Resource("authentication.k8s.io", "v1", "userextras", "UserExtra", namespaced=False)
"""Nothing is served under this name; only RBAC knows it, for impersonation."""
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
JOBS = BatchJob.resource
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
SELFSUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
LOCALQUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLUSTERQUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
COHORTS = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort", namespaced=False)
RESOURCEFLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOADPRIORITYCLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
ADMISSIONCHECKS = Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", namespaced=False)
RAYCLUSTERS = RayCluster.resource
RAYJOBS = RayJob.resource
RAYSERVICES = RayService.resource
WORKERCLUSTERS = Resource("slicebus.dev", "v1alpha1", "workerclusters", "WorkerCluster", namespaced=False)

JOB_RESOURCES: dict[str, Resource] = {name: kind.resource for name, kind in KINDS.items()}
"""The resource of each job kind, by its name: caches, permissions and the checks of `slicebus doctor` come of it."""

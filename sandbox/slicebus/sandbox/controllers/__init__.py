"""Stand-ins for the controllers of a cluster: for Jobs and their TTL, KubeRay, Ray's autoscaler, the scheduler and the
kubelet.

They work with any API server. The demo runs all of them on embedded servers. On a real cluster only the missing ones
run: a test cluster without KubeRay still has RayClusters that grow. They do what slicebus depends on, not everything
that the originals do.
"""

"""Stand-ins for the controllers of a cluster: for Jobs and their time to live, KubeRay, the scheduler and the kubelet.

They work against any API server. The demo runs all of them on embedded servers; where a real cluster has some of its
own, only the others are run: a test cluster without KubeRay still has RayClusters that grow.
They copy what slicebus depends on, not everything that the originals do.
"""

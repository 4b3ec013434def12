"""Tries out an example of a declared kind, in a process that has the declaration by its variable.

Its argument is an `Example` as a JSON array. It runs on embedded servers.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from slicebus.cli.demo.world import embedded_world, fleet, running
from support.declared.cluster import JobSetController
from support.declared.round_trip import defined
from support.examples import Example, try_out
from support.kubeconfig import join_kubeconfigs, write_kubeconfig


async def main(example: Example) -> None:
    async with embedded_world() as world:
        clients = {"manager": world.manager} | {str(name): client for name, client in world.workers.items()}
        for client in clients.values():
            await defined(client)
        controllers = [JobSetController(worker).run() for worker in world.workers.values()]
        with TemporaryDirectory() as name:
            folder = Path(name)
            kubeconfigs = {name: write_kubeconfig(folder / name, client.host) for name, client in clients.items()}
            contexts = join_kubeconfigs(folder / "contexts", kubeconfigs)
            async with running(*controllers), fleet(world, {role: f"memory://{role}@example" for role in clients}):
                await try_out(world, contexts, example)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Example)))

"""A job whose end the API server refuses to show: nobody tells the manager when it takes it."""

import pytest

from slicebus.kube.resources import JOBS
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from unit.manager.message_router import Manager
from unit.manager.test_refused_writes import POLICY, an_end, refusing


@pytest.mark.parametrize("beside_kueue", [False, True], ids=["builtin", "beside a Kueue"])
async def test_every_reconcile_of_a_kept_end_asks_for_the_next_one(manager: Manager, beside_kueue: bool) -> None:
    if beside_kueue:
        manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    ref = await manager.given_job()
    with refusing(manager, POLICY, (JOBS, "status")):
        await manager.receive(an_end(ref))
        for _ in range(6):
            manager.requeued.clear()
            await manager.reconcile_job(ref)
            assert manager.requeued[:1] == [ref]
    for _ in range(3):
        manager.requeued.clear()
        await manager.reconcile_job(ref)
    assert manager.requeued == []
    assert {entry["type"] for entry in (await manager.job_status())["conditions"]} == {"SuccessCriteriaMet", "Complete"}

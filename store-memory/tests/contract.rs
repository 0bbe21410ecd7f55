//! The shared contract suite on the in-memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use spotmesh::driver::LocationStore;
use spotmesh::model::{NodeFence, StoreTime};
use spotmesh::store::contract::{Capacity, Provider, Slots};
use spotmesh_store_memory::{MemoryStore, SlotUse};

struct Memory {
    store: MemoryStore,
    micros: Arc<AtomicI64>,
}

impl Memory {
    fn fresh() -> Self {
        let micros = Arc::new(AtomicI64::new(1_000_000));
        let clock = micros.clone();
        let store = MemoryStore::with_clock(move || StoreTime::from_micros(clock.load(Ordering::SeqCst)));
        Self { store, micros }
    }
}

impl Provider for Memory {
    fn store(&self) -> Arc<dyn LocationStore> {
        Arc::new(self.store.clone())
    }

    async fn advance(&self, by: Duration) {
        self.micros.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    async fn capacity(&self, node: &NodeFence) -> Capacity {
        let used = self.store.state().node_use(node);
        let slots = |used: SlotUse| Slots { active: used.active, reserved: used.reserved };
        Capacity {
            actors: slots(used.actors),
            spots: slots(used.spots),
            types: used.types.into_iter().map(|(spot_type, used)| (spot_type, slots(used))).collect(),
        }
    }

    async fn check(&self) {
        self.store.state().check().unwrap();
    }

    async fn leave_generations(&self, remaining: u64) {
        self.store.leave_generations(remaining);
    }

    async fn interrupt_watches(&self) {
        self.store.resync();
    }
}

spotmesh::contract_tests!(futures::executor::block_on, async { Memory::fresh() });

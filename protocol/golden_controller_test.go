package protocol

var (
	goldenWorker   = Worker{InstanceID: []byte("inst1")}
	goldenListener = Listener{IP: []byte("10.0.0.1"), Port: 9950}
	goldenLocation = []byte("LocalCPUBackend")
	goldenSync     = []byte("inst1_0_0a1b2c3d")
	goldenHashes   = []ChunkHash{{Bits: 31}, {Bits: 1<<64 - 42, Negative: true}}

	goldenOps = []KVOperation{{OpAdmit, goldenHashes[0], 0}, {OpEvict, goldenHashes[1], 1}}
)

// goldenController are the messages between a worker and its controller.
var goldenController = map[string]Message{
	"register":     &RegisterMsg{Worker: goldenWorker, Listener: goldenListener, PeerInitURL: []byte("10.0.0.1:9960")},
	"register-ext": &RegisterMsg{Worker: goldenWorker, Listener: goldenListener, Incarnation: uuid1},

	"register-ret":       &RegisterRetMsg{ExtraConfig: ExtraConfig{HeartbeatURL: []byte("10.0.0.9:8082")}},
	"register-ret-empty": &RegisterRetMsg{},
	"deregister":         &DeRegisterMsg{Worker: goldenWorker, Listener: goldenListener},
	"deregister-ext":     &DeRegisterMsg{Worker: goldenWorker, Listener: goldenListener, Incarnation: uuid1},
	"heartbeat":          &HeartbeatMsg{Worker: goldenWorker, Listener: goldenListener},
	"heartbeat-ext": &HeartbeatMsg{
		Worker: goldenWorker, Listener: goldenListener, PeerInitURL: []byte("10.0.0.1:9960"), Incarnation: uuid1,
	},
	"heartbeat-ret": &HeartbeatRetMsg{},
	"heartbeat-ret-full-sync": &HeartbeatRetMsg{
		Commands: []Command{{Type: CommandFullSync, Reason: []byte("worker_re_registered")}},
	},
	"heartbeat-ret-none": &HeartbeatRetMsg{Commands: []Command{{}, {Type: CommandFullSync}}},
	"p2p-lookup":         &BatchedP2PLookupMsg{Hashes: goldenHashes, Worker: goldenWorker},
	"p2p-lookup-unsigned": &BatchedP2PLookupMsg{
		Hashes: []ChunkHash{{Bits: 1<<64 - 42}}, Worker: Worker{[]byte("inst1"), 300},
	},
	"p2p-lookup-ret": &BatchedP2PLookupRetMsg{
		Holders: []Holder{{[]byte("inst2"), goldenLocation, 2, []byte("10.0.0.2:9960")}},
	},
	"p2p-lookup-ret-miss": &BatchedP2PLookupRetMsg{},
	"p2p-lookup-ret-two": &BatchedP2PLookupRetMsg{
		Holders: []Holder{
			{[]byte("inst2"), goldenLocation, 2, []byte("10.0.0.2:9960")},
			{[]byte("inst3"), goldenLocation, 1, []byte("10.0.0.3:9960")},
		},
	},
	"kv-admit": &KVAdmitMsg{Worker: goldenWorker, Key: goldenHashes[1], Location: goldenLocation, Seq: 7},
	"kv-evict": &KVEvictMsg{Worker: goldenWorker, Key: goldenHashes[0], Location: goldenLocation, Seq: 300},
	"kv-batch": &BatchedKVOperationMsg{Worker: goldenWorker, Location: goldenLocation, Operations: goldenOps},
	"kv-batch-ext": &BatchedKVOperationMsg{
		Worker: goldenWorker, Location: goldenLocation, Operations: goldenOps, Incarnation: uuid1,
	},
	"sync-start": &FullSyncStartMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, TotalKeys: 4001, BatchCount: 3,
	},
	"sync-start-ext": &FullSyncStartMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, TotalKeys: 4001, BatchCount: 3,
		Incarnation: uuid1, Next: 300, Numbered: true,
	},
	"sync-start-ret": &FullSyncStartRetMsg{SyncID: goldenSync, Accepted: true},
	"sync-start-ret-refused": &FullSyncStartRetMsg{
		SyncID: goldenSync, ErrorMsg: []byte("worker is not registered"),
	},
	"sync-batch": &FullSyncBatchMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, BatchID: 2, Keys: goldenHashes,
	},
	"sync-batch-ext": &FullSyncBatchMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, BatchID: 2, Keys: goldenHashes,
		Incarnation: uuid1,
	},
	"sync-end": &FullSyncEndMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, ActualTotalKeys: 4000,
	},
	"sync-end-ext": &FullSyncEndMsg{
		Worker: goldenWorker, Location: goldenLocation, SyncID: goldenSync, ActualTotalKeys: 4000, Incarnation: uuid1,
	},
	"sync-status": &FullSyncStatusMsg{Worker: goldenWorker, SyncID: goldenSync},
	"sync-status-ret": &FullSyncStatusRetMsg{
		SyncID: goldenSync, GlobalProgress: 0.25, MissingBatches: []int64{1, 300},
	},
	"sync-status-ret-complete": &FullSyncStatusRetMsg{
		SyncID: goldenSync, IsComplete: true, GlobalProgress: 1, CanExitFreeze: true,
	},
	"controller-error":    &ErrorMsg{Error: []byte("x")},
	"worker-clear":        &WorkerControlMsg{Kind: TagClearWorkerMsg, EventID: []byte("ev-1")},
	"worker-pin":          &WorkerControlMsg{Kind: TagPinWorkerMsg, EventID: []byte("ev-1")},
	"worker-compress":     &WorkerControlMsg{Kind: TagCompressWorkerMsg, EventID: []byte("ev-1")},
	"worker-decompress":   &WorkerControlMsg{Kind: TagDecompressWorkerMsg, EventID: []byte("ev-1")},
	"worker-move":         &WorkerControlMsg{Kind: TagMoveWorkerMsg, EventID: []byte("ev-1")},
	"worker-health":       &WorkerControlMsg{Kind: TagHealthWorkerMsg, EventID: []byte("ev-1")},
	"worker-check-finish": &WorkerControlMsg{Kind: TagCheckFinishWorkerMsg, EventID: []byte("ev-1")},
}

package protocol

var (
	goldenLookup    = []byte("lu-1")
	goldenRequester = []byte("10.0.0.2:9960")

	goldenPull = AscendBatchedLookupAndGetMsg{
		LookupID: goldenLookup, ReceiverID: goldenRequester, Keys: goldenKeys, PullMode: true,
	}
	goldenPush = AscendBatchedLookupAndGetMsg{
		LookupID: goldenLookup, ReceiverID: goldenRequester, Keys: goldenKeys, MemIndexes: []int64{3, 65536},
		BufferUUIDs: []UUID{uuid2, uuid2},
	}
	goldenHits = AscendBatchedLookupAndGetRetMsg{
		HitChunks: 2, RemoteUUIDs: []UUID{uuid1, uuid1}, RemoteIndexes: []int64{7, 128}, LeaseSeconds: 60,
	}
)

// get is a question with an extension.
func get(m AscendBatchedLookupAndGetMsg, ext P2PGetExt) *AscendBatchedLookupAndGetMsg {
	m.HasExt, m.Ext = true, ext
	return &m
}

// goldenP2P are the messages between peers.
var goldenP2P = map[string]Message{
	"p2p-get-pull": &goldenPull,
	"p2p-get-push": &goldenPush,
	"p2p-get-pull-ext": get(goldenPull, P2PGetExt{
		Version: 2, Incarnation: uuid1, To: uuid2, Operation: 14, Attempt: 2, PatienceNS: 2_500_000_000,
		Stamps: Stamps{3_000_000_000, 7_000_000_000},
	}),
	"p2p-get-push-ext": get(goldenPush, P2PGetExt{
		Version: 2, Incarnation: uuid1, To: uuid2, Operation: 15, Attempt: 1, PatienceNS: 2_500_000_000, Grant: 1 << 40,
		Generations: []uint64{5, 70000}, GrantedNS: 7_000_000_000, LeaseNS: 30_000_000_000,
		Stamps: Stamps{8_500_000_000, 3_000_000_000},
	}),
	"p2p-get-ret-leased": &goldenHits,
	"p2p-get-ret-miss":   &AscendBatchedLookupAndGetRetMsg{},
	"p2p-get-ret-ext": &AscendBatchedLookupAndGetRetMsg{
		HitChunks: 2, RemoteUUIDs: []UUID{uuid1, uuid1}, RemoteIndexes: []int64{7, 128}, LeaseSeconds: 0.75, HasExt: true,
		Ext: P2PGetReplyExt{
			Version: 2, Incarnation: uuid2, Grant: 1 << 40, Generations: []uint64{5, 70000},
			Stamps: Stamps{7_000_000_000, 3_000_000_000},
		},
	},
	"p2p-get-ret-refused": &AscendBatchedLookupAndGetRetMsg{
		HasExt: true,
		Ext:    P2PGetReplyExt{Version: 2, Incarnation: uuid2, Code: 3, RetryNS: 50_000_000, Reason: goldenReason},
	},
	"p2p-done": &AscendBatchedLookupAndGetDoneMsg{LookupID: goldenLookup},
	"p2p-done-ext": &AscendBatchedLookupAndGetDoneMsg{
		LookupID: goldenLookup, HasExt: true,
		Ext: P2PDoneExt{Version: 2, Incarnation: uuid1, To: uuid2, Operation: 14, Attempt: 2, Grant: 1 << 40},
	},
	"p2p-done-ret":      &AscendBatchedLookupAndGetDoneRetMsg{},
	"p2p-done-port":     &AscendQueryDonePortMsg{},
	"p2p-done-port-ret": &AscendQueryDonePortRetMsg{DoneURL: []byte("10.0.0.1:41234")},
	"p2p-error":         &P2PErrorMsg{Code: P2PNotIntroduced},
	"p2p-put": &AscendBatchedLookupAndPutMsg{
		BatchedLookupAndPutMsg: BatchedLookupAndPutMsg{
			SenderID: goldenRequester, Keys: goldenKeys, Offsets: []int64{256, 200}, MemIndexes: []int64{3, 4},
		},
		BufferUUIDs: []UUID{uuid2, uuid2},
	},
	"p2p-upstream-get": &BatchedLookupAndGetMsg{
		LookupID: goldenLookup, ReceiverID: goldenRequester, Keys: goldenKeys[:1], MemIndexes: []int64{5},
	},
	"p2p-upstream-get-ret": &BatchedLookupAndGetRetMsg{HitChunks: 1},
	"p2p-upstream-put": &BatchedLookupAndPutMsg{
		SenderID: goldenRequester, Keys: goldenKeys[:1], Offsets: []int64{256}, MemIndexes: []int64{5},
	},
	"p2p-upstream-put-ret": &BatchedLookupAndPutRetMsg{ReadChunks: 300},
	"p2p-init":             &P2PInitSideMsg{},
	"p2p-init-ret":         &P2PInitSideRetMsg{PeerLookupURL: []byte("10.0.0.1:9962")},
}

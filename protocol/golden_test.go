package protocol

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
)

var (
	uuid1 = UUID(uuid.MustParse("6f1c2d3e-4a5b-6c7d-8e9f-001122334455"))
	uuid2 = UUID(uuid.MustParse("aabbccdd-eeff-4011-8233-445566778899"))

	goldenKeys  = [][]byte{[]byte("m@2@0@1f@bfloat16"), []byte("m@2@0@-2a@bfloat16")}
	goldenShape = Shape{Dims: [4]uint32{2, 36, 256, 512}, N: 4}

	goldenRequest = AllocRequest{
		Keys: goldenKeys, Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 200,
	}
	goldenAllocExt = AllocExt{
		Version: 1, Incarnation: uuid1, To: uuid2, Operation: 7, Attempt: 2, PatienceNS: 2_500_000_000,
		Request: []byte("17"), Commit: []uint64{3, 300}, Abort: []uint64{1<<64 - 1},
	}
)

var goldenReason = []byte("layout.dtype is half here, bfloat16 there")

var (
	pullID1 = mustPullID("0123456789abcdef0123456789abcdef")
	pullID2 = mustPullID("f0e1d2c3b4a5968778695a4b3c2d1e0f")

	goldenOffer = PullReadyNotif{
		PullID: pullID1, Keys: goldenKeys, SenderUUIDs: []UUID{uuid1, uuid1}, SenderIndexes: []int64{0, 300},
		SenderID: []byte("10.0.0.1:7600"), SenderDoneURL: []byte("10.0.0.1:7600"),
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 200,
	}
	goldenOfferExt = PullReadyExt{
		Version: 1, Incarnation: uuid1, To: uuid2, Operation: 9, Attempt: 2, PatienceNS: 2_500_000_000,
		Request: []byte("17"), Grant: 1 << 40, Generations: []uint64{5, 70000},
		GrantedNS: 7_000_000_000, LeaseNS: 360_000_000_000, Stamps: Stamps{8_500_000_000, 3_000_000_000},
		Renew: []byte("10.0.0.1:7500"), Withdraw: []PullID{pullID2},
	}
)

func mustPullID(s string) PullID {
	id, ok := ParsePullID([]byte(s))
	if !ok {
		panic(s)
	}
	return id
}

// offer is the golden offer with an extension.
func offer(ext PullReadyExt) *PullReadyNotif {
	m := goldenOffer
	m.HasExt, m.Ext = true, ext
	return &m
}

func buffer(u UUID) []BufferInfo {
	return []BufferInfo{{UUID: u, Ptr: 139637976727552, Size: 1207959552, PageSize: 18874368}}
}

// golden holds, under the names of vectors/vectors.txt, what each payload says.
var golden = func() map[string]Message {
	all := maps.Clone(goldenPD)
	maps.Copy(all, goldenP2P)
	maps.Copy(all, goldenController)
	maps.Copy(all, goldenAgent)
	return all
}()

// goldenPD are the messages of a push or pull.
var goldenPD = map[string]Message{
	"alloc-request": &goldenRequest,
	"alloc-request-async": &AllocRequest{
		Keys: goldenKeys[:1], Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 200,
		WithAsync: true, RequestID: []byte("17"), IsLastBatch: true, TotalChunks: 1,
	},
	"alloc-request-ext": &AllocRequest{
		Keys: goldenKeys, Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 200,
		HasExt: true, Ext: goldenAllocExt,
	},
	"alloc-request-async-ext": &AllocRequest{
		Keys: goldenKeys, Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 200,
		WithAsync: true, RequestID: []byte("17"), IsLastBatch: true, TotalChunks: 2,
		HasExt: true, Ext: goldenAllocExt,
	},
	"alloc-request-commit": &AllocRequest{
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16,
		HasExt: true, Ext: AllocExt{Version: 1, Operation: 8, Commit: []uint64{3}},
	},
	"alloc-request-layers": &AllocRequest{
		Keys: [][]byte{[]byte("m@2@0@1f@bfloat16@0"), []byte("m@2@0@1f@bfloat16@35")}, Format: FormatKV2LTD,
		Shape: Shape{Dims: [4]uint32{2, 1, 256, 512}, N: 4}, Dtype: DtypeBFloat16, LastChunkTokens: 256,
		HasExt: true, Ext: AllocExt{
			Version: 2, Operation: 9, Attempt: 1, Request: []byte("17"), Layers: 36, Epoch: 2, Opened: 7,
		},
	},
	"alloc-request-carried": &AllocRequest{
		Keys: [][]byte{[]byte("m@2@0@1f@bfloat16"), []byte("m@2@0@2a@bfloat16")}, Format: FormatKV2LTD,
		Shape: Shape{Dims: [4]uint32{2, 1, 2, 2}, N: 4}, Dtype: DtypeBFloat16, LastChunkTokens: 1,
		HasExt: true, Ext: AllocExt{Version: 3, Operation: 9, Attempt: 1, Request: []byte("17"), Carried: []byte{
			0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
		}},
	},
	"alloc-response-taken": &AllocResponse{
		Form: FormAscend, AlreadySent: []int64{0}, HasExt: true, Ext: AllocReplyExt{Version: 3, Taken: 1},
	},
	"init-response-carries": &HixlInitResponse{
		EngineID: []byte("10.0.0.1:7300"), HasExt: true,
		Ext: HelloExt{ProtoMin: 3, ProtoMax: 3, Window: 16, Carries: 65536},
	},
	"alloc-response-sync": &AllocResponse{Form: FormSync, AlreadySent: []int64{0}, RemoteIndexes: []int64{129}},
	"alloc-response-sync-ext": &AllocResponse{
		Form: FormSync, HasExt: true, Ext: AllocReplyExt{Version: 1, Committed: []uint64{3}, Gone: []uint64{300}},
	},
	"alloc-response-async":        &AllocResponse{Form: FormAsync2, RemoteIndexes: []int64{129, -1}, AllocFailed: true},
	"alloc-response-async-failed": &AllocResponse{Form: FormAsync2, RemoteIndexes: []int64{-1}, AllocFailed: true},
	"alloc-response-ascend": &AllocResponse{
		Form: FormAscend, AlreadySent: []int64{0}, RemoteIndexes: []int64{129}, RemoteUUIDs: []UUID{uuid1},
	},
	"alloc-response-ascend-failed": &AllocResponse{Form: FormAscend, AllocFailed: true},
	"alloc-response-ascend-ext": &AllocResponse{
		Form: FormAscend, AlreadySent: []int64{0}, RemoteIndexes: []int64{129, 4}, RemoteUUIDs: []UUID{uuid1, uuid2},
		HasExt: true,
		Ext:    AllocReplyExt{Version: 1, Grant: 1 << 40, Generations: []uint64{5, 70000}, LeaseNS: 30_000_000_000},
	},
	"alloc-response-ascend-failed-ext": &AllocResponse{
		Form: FormAscend, AllocFailed: true,
		HasExt: true, Ext: AllocReplyExt{Version: 1, Code: 3, RetryNS: 50_000_000},
	},
	"proxy-notif":               &ProxyNotif{RequestID: []byte("17")},
	"proxy-notif-ext":           &ProxyNotif{RequestID: []byte("17"), HasExt: true, Failed: 3, Rank: 1},
	"pull-ready-notif":          &goldenOffer,
	"pull-ready-notif-ext":      offer(goldenOfferExt),
	"pull-ready-notif-ext-bare": offer(PullReadyExt{Version: 1}),
	"pull-ready-notif-withdraw": &PullReadyNotif{
		SenderID: []byte("10.0.0.1:7600"), SenderDoneURL: []byte("10.0.0.1:7600"),
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16,
		HasExt: true,
		Ext:    PullReadyExt{Version: 1, Incarnation: uuid1, To: uuid2, Operation: 10, Withdraw: []PullID{pullID1, pullID2}},
	},
	"pull-ready-done-ack":        &PullReadyDoneAck{AlreadySent: []int64{1}},
	"pull-ready-done-ack-failed": &PullReadyDoneAck{AllocFailed: true},
	"pull-ready-done-ack-delayed": &PullReadyDoneAck{
		AlreadySent: []int64{1}, HasExt: true,
		Ext: PullAckExt{Version: 1, Incarnation: uuid2, Stamps: Stamps{3_000_000_000, 7_000_000_000}, Delayed: true},
	},
	"pull-ready-done-ack-failed-ext": &PullReadyDoneAck{
		AllocFailed: true, HasExt: true,
		Ext: PullAckExt{Version: 1, Incarnation: uuid2, Code: 3, RetryNS: 50_000_000},
	},
	"pull-done-signal": &PullDoneSignal{PullID: pullID1},
	"pull-done-signal-ext": &PullDoneSignal{
		PullID: pullID1, HasExt: true, Ext: PullDoneExt{Version: 1, Incarnation: uuid2, To: uuid1, Grant: 1 << 40},
	},
	"pull-done-signal-missing": &PullDoneSignal{
		PullID: pullID1, HasExt: true,
		Ext: PullDoneExt{Version: 1, Incarnation: uuid2, To: uuid1, Grant: 1 << 40, Code: 3, Missing: 300},
	},
	"renew-request": &RenewRequest{
		Version: 1, Incarnation: uuid2, To: uuid1, Operation: 11, Grants: []uint64{3, 1 << 40}, Done: []uint64{300},
		Stamps: Stamps{3_000_000_000, 7_000_000_000},
	},
	"renew-request-empty": &RenewRequest{Version: 1, Incarnation: uuid2, To: uuid1},
	"renew-response": &RenewResponse{
		Version: 1, Incarnation: uuid1, Extended: []uint64{3}, LeaseNS: 30_000_000_000, Gone: []uint64{1 << 40},
		Done:   []uint64{300},
		Stamps: Stamps{7_000_000_000, 3_000_000_000},
	},
	"renew-response-empty": &RenewResponse{Version: 1, Incarnation: uuid1},
	"end-request": &EndRequest{
		Version: 2, Incarnation: uuid2, To: uuid1, Operation: 14, Request: []byte("17"), Code: 6, Reason: []byte("no pages"),
	},
	"end-request-stranger": &EndRequest{Version: 2, Operation: 15, Request: []byte("17")},
	"end-response":         &EndResponse{Version: 2},
	"end-response-said":    &EndResponse{Version: 2, Code: 24, Reason: []byte("other keys")},
	"cache-query-request":  &CacheQueryRequest{Keys: goldenKeys},
	"cache-query-request-ext": &CacheQueryRequest{
		Keys: goldenKeys, HasExt: true,
		Ext: CacheQueryExt{
			Version: 2, Incarnation: uuid2, To: uuid1, Operation: 12, Attempt: 2, PatienceNS: 2_500_000_000,
			Request: []byte("17"), Done: []uint64{3, 1 << 40},
		},
	},
	"cache-query-request-done": &CacheQueryRequest{
		HasExt: true, Ext: CacheQueryExt{Version: 2, Incarnation: uuid2, To: uuid1, Operation: 13, Done: []uint64{300}},
	},
	"cache-query-response":       &CacheQueryResponse{CachedKeys: goldenKeys, CachedIndexes: []int64{0, 300}},
	"cache-query-response-empty": &CacheQueryResponse{},
	"cache-query-response-ext": &CacheQueryResponse{
		CachedKeys: goldenKeys, CachedIndexes: []int64{0, 300}, HasExt: true,
		Ext: CacheReplyExt{
			Version: 2, Incarnation: uuid1, Grant: 1 << 40, Generations: []uint64{5, 70000},
			Lengths: []uint64{18874368, 14745600}, LeaseNS: 30_000_000_000, Done: []uint64{3, 1 << 40},
		},
	},
	"cache-query-response-refused": &CacheQueryResponse{
		HasExt: true,
		Ext:    CacheReplyExt{Version: 2, Incarnation: uuid1, Code: 3, RetryNS: 50_000_000, Reason: goldenReason},
	},
	"hixl-init-request": &HixlInitRequest{LocalID: []byte("10.0.0.2:9960"), EngineID: []byte("10.0.0.2:50001")},
	"hixl-init-request-ext": &HixlInitRequest{
		LocalID: []byte("10.0.0.2:9960"), EngineID: []byte("10.0.0.2:50001"), HasExt: true,
		Ext: HelloExt{
			ProtoMin: 1, ProtoMax: 2, Incarnation: uuid1, Caps: CapCommit | CapLease, PageBytes: 18874368,
			Layout: Layout{FormatKV2LTD, goldenShape, DtypeBFloat16}, Planes: [][]byte{[]byte("shm"), []byte("tcp")},
		},
	},
	"hixl-init-response": &HixlInitResponse{EngineID: []byte("10.0.0.1:50000")},
	"hixl-init-response-ext": &HixlInitResponse{
		EngineID: []byte("10.0.0.1:50000"), HasExt: true,
		Ext: HelloExt{
			ProtoMin: 1, ProtoMax: 1, Incarnation: uuid2, Caps: CapCommit, PageBytes: 18874368,
			Layout: Layout{FormatKV2LTD, goldenShape, DtypeBFloat16}, Planes: [][]byte{[]byte("shm"), []byte("tcp")},
			Blobs: [][]byte{{0, 1}, {}},
		},
	},
	"hixl-init-response-refused": &HixlInitResponse{
		EngineID: []byte("10.0.0.1:50000"), HasExt: true,
		Ext: HelloExt{ProtoMin: 1, ProtoMax: 1, Code: 9, Reason: []byte("page size differs")},
	},
	"hixl-init-request-clock": &HixlInitRequest{
		LocalID: []byte("10.0.0.2:9960"), EngineID: []byte("10.0.0.2:50001"), HasExt: true,
		Ext: HelloExt{
			ProtoMin: 1, ProtoMax: 1, Incarnation: uuid1, Caps: CapCommit | CapLease | CapPull | CapRenew,
			Stamps: Stamps{ClockNS: 7_000_000_000},
		},
	},
	"hixl-init-response-clock": &HixlInitResponse{
		EngineID: []byte("10.0.0.1:50000"), HasExt: true,
		Ext: HelloExt{
			ProtoMin: 1, ProtoMax: 1, Incarnation: uuid2, Caps: CapPull | CapRenew, Code: 9, Reason: []byte("page size differs"),
			Stamps: Stamps{3_000_000_000, 7_000_000_000},
		},
	},
	"hixl-init-request-window": &HixlInitRequest{
		LocalID: []byte("10.0.0.2:9960"), EngineID: []byte("10.0.0.2:50001"), HasExt: true,
		Ext: HelloExt{ProtoMin: 2, ProtoMax: 2, Incarnation: uuid1, Caps: CapCommit, Window: 16, PageBytes: 18874368},
	},
	"hixl-init-request-layers": &HixlInitRequest{
		LocalID: []byte("10.0.0.2:9960"), EngineID: []byte("10.0.0.2:50001"), HasExt: true,
		Ext: HelloExt{ProtoMin: 2, ProtoMax: 2, Incarnation: uuid1, Caps: CapCommit | CapLayers, Layers: 36},
	},
	"hixl-init-response-window": &HixlInitResponse{
		EngineID: []byte("10.0.0.1:50000"), HasExt: true,
		Ext: HelloExt{
			ProtoMin: 2, ProtoMax: 2, Incarnation: uuid2, Window: 300, Stamps: Stamps{3_000_000_000, 7_000_000_000},
		},
	},
	"hixl-mem-info-request-clock": &HixlMemInfoRequest{
		LocalID: []byte("10.0.0.2:9960"), Buffers: buffer(uuid1), HasExt: true, Stamps: Stamps{7_500_000_000, 3_000_000_000},
	},
	"hixl-mem-info-request-planes": &HixlMemInfoRequest{
		LocalID: []byte("10.0.0.2:9960"), Buffers: buffer(uuid1), HasExt: true, Stamps: Stamps{7_500_000_000, 3_000_000_000},
		Planes: [][]byte{[]byte("shm"), []byte("tcp")}, Blobs: [][]byte{{0, 1}, {}},
	},
	"hixl-mem-info-response-clock": &HixlMemInfoResponse{
		Buffers: buffer(uuid2), HasExt: true, Stamps: Stamps{ClockNS: 1<<63 - 1},
	},
	"hixl-ready-request":        &HixlReadyRequest{LocalID: []byte("10.0.0.2:9960")},
	"hixl-ready-response":       &HixlReadyResponse{OK: true},
	"hixl-ready-response-error": &HixlReadyResponse{},
	"hixl-ready-response-refused": &HixlReadyResponse{
		Code: 19, Reason: []byte("kind is kvferry here, lmcache there"),
	},
	"alloc-request-abort": &AllocRequest{
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, HasExt: true,
		Ext: AllocExt{Version: 2, Operation: 8, Abort: []uint64{3}, Code: 12, Reason: []byte("transfer")},
	},
	"alloc-response-ascend-refused": &AllocResponse{
		Form: FormAscend, AllocFailed: true, HasExt: true, Ext: AllocReplyExt{Version: 2, Code: 11, Reason: goldenReason},
	},
	"alloc-response-sync-refused": &AllocResponse{
		Form: FormSync, HasExt: true, Ext: AllocReplyExt{Version: 2, Code: 11, Reason: goldenReason},
	},
	"pull-ready-notif-withdraw-why": &PullReadyNotif{
		SenderID: []byte("10.0.0.1:7600"), SenderDoneURL: []byte("10.0.0.1:7600"),
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, HasExt: true,
		Ext: PullReadyExt{
			Version: 2, Incarnation: uuid1, To: uuid2, Operation: 10, Withdraw: []PullID{pullID1},
			Code: 1, Reason: []byte("put_timeout is 30s here"),
		},
	},
	"pull-ready-done-ack-refused": &PullReadyDoneAck{
		AllocFailed: true, HasExt: true,
		Ext: PullAckExt{Version: 2, Incarnation: uuid2, Code: 11, Delayed: true, Reason: goldenReason},
	},
	"pull-done-signal-why": &PullDoneSignal{
		PullID: pullID1, HasExt: true,
		Ext: PullDoneExt{
			Version: 2, Incarnation: uuid2, To: uuid1, Grant: 1 << 40, Code: 12, Missing: 3, Reason: []byte("scatter"),
		},
	},
	"hixl-mem-info-request":  &HixlMemInfoRequest{LocalID: []byte("10.0.0.2:9960"), Buffers: buffer(uuid1)},
	"hixl-mem-info-response": &HixlMemInfoResponse{Buffers: buffer(uuid2)},
}

// text renders every field of a message, so that messages compare; nil and empty lists mean the same.
func text(m Message) string { return fmt.Sprintf("%T%+v", m, m) }

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenVectors(t *testing.T) {
	seen := map[string]bool{}
	datadriven.RunTest(t, "vectors/vectors.txt", func(t *testing.T, d *datadriven.TestData) string {
		name := d.CmdArgs[0].Key
		want, payload := golden[name], unhex(t, d.Input)
		if want == nil {
			d.Fatalf(t, "no value for vector %s", name)
		}
		seen[name] = true
		tag, err := PeekTag(payload, nil)
		if err != nil {
			d.Fatalf(t, "PeekTag: %v", err)
		}
		got := NewMessage(tag)
		if err := got.Decode(payload, nil); err != nil {
			d.Fatalf(t, "Decode: %v", err)
		}
		if text(got) != text(want) {
			t.Errorf("%s decodes as\n%s\nwant\n%s", name, text(got), text(want))
		}
		if got := want.Append([]byte("before")); string(got) != "before"+string(payload) {
			t.Errorf("%s encodes as\n%x\nwant\n%x", name, got[len("before"):], payload)
		}
		out, err := Describe(payload, nil)
		if err != nil {
			t.Errorf("Describe: %v", err)
		}
		return out
	})
	for name := range golden {
		if !seen[name] {
			t.Errorf("value %s has no vector", name)
		}
	}
}

// "Async-1 answers every key": its bytes are those of Async-2, so it is only ever encoded.
func TestFirstAsynchronousFormEncodesAsTheSecond(t *testing.T) {
	m := AllocResponse{Form: FormAsync1, RemoteIndexes: []int64{129, -1}}
	second := m
	second.Form = FormAsync2
	if got, want := m.Append(nil), second.Append(nil); string(got) != string(want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

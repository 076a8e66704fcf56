package fuzz

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/foreign"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

var rewriteSeeds = flag.Bool("rewrite-seeds", false, "write the seed corpora instead of comparing them")

// A seed is one input of a corpus, and its file's name.
type seed struct {
	name  string
	bytes []byte
}

// goldenVectors reads the payloads of package protocol's golden vectors.
func goldenVectors(t *testing.T) []seed {
	t.Helper()
	file, err := os.ReadFile("../protocol/testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seeds []seed
	for block := range strings.SplitSeq(string(file), "\ndecode ") {
		name, rest, found := strings.Cut(block, "\n")
		digits, _, _ := strings.Cut(rest, "\n----")
		if !found || strings.HasPrefix(block, "#") {
			continue // what stands before the first vector
		}
		payload, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("vector %s: %v", name, err)
		}
		seeds = append(seeds, seed{name, payload})
	}
	if len(seeds) < 20 {
		t.Fatalf("only %d golden vectors found", len(seeds))
	}
	return seeds
}

// attacks are payloads that have harmed decoders, each in a ProxyNotif's unknown field or alone.
func attacks() []seed {
	notif := (&protocol.ProxyNotif{RequestID: []byte("17")}).Append(nil)
	extended := func(value string) []byte {
		b := slices.Clone(notif)
		b[0]++
		return append(append(b, "\xa1x"...), value...)
	}
	return []seed{
		{"attack-empty", nil},
		{"attack-map-of-everything", []byte("\xdf\xff\xff\xff\xff")},
		{"attack-list-of-everything", extended("\xdd\xff\xff\xff\xff")},
		{"attack-bytes-of-everything", extended("\xc6\xff\xff\xff\xff")},
		{"attack-deep", extended(strings.Repeat("\x91", 64))},
		{"attack-deep-maps", extended(strings.Repeat("\x81\xa0", 64))},
		{"attack-reserved", extended("\xc1")},
		{"attack-ext", extended("\xc7\x03\x01abc")},
		{"attack-trailing", append(slices.Clone(notif), 0)},
		{"attack-duplicate", []byte("\x83\xa4type\xaaProxyNotif\xa6req_id\xa11\xa6req_id\xa12")},
		{"attack-tag-last", []byte("\x82\xa6req_id\xa11\xa4type\xaaProxyNotif")},
		{"attack-nil-for-text", []byte("\x82\xa4type\xaaProxyNotif\xa6req_id\xc0")},
		{"attack-not-utf8", []byte("\x82\xa4type\xaaProxyNotif\xa6req_id\xa1\xff")},
	}
}

// foreigners are the vectors as other encoders may write them, and as one does that gives a field twice.
func foreigners(t *testing.T, vectors []seed) (all []seed) {
	t.Helper()
	for i, v := range vectors {
		b, ok := foreign.Append(nil, v.bytes, foreign.All, choices(uint64(i)))
		twice, _, again := foreign.Repeat(nil, v.bytes, foreign.All, choices(uint64(i)))
		if !ok || !again {
			t.Fatalf("vector %s is no message to an encoder", v.name)
		}
		all = append(all, seed{"foreign-" + v.name, b})
		if i%4 == 0 {
			all = append(all, seed{"twice-" + v.name, twice})
		}
	}
	return all
}

// inJSON are the vectors that may be JSON, as another writer has them, and what has harmed readers of JSON.
func inJSON(t *testing.T, vectors []seed) (all []seed) {
	t.Helper()
	for _, v := range vectors {
		if tag, err := protocol.PeekTag(v.bytes, nil); err != nil || tag.Family() != protocol.FamilyController {
			continue
		}
		var fields map[string]any
		if err := msgpack.Unmarshal(v.bytes, &fields); err != nil {
			t.Fatalf("vector %s: %v", v.name, err)
		}
		b, err := json.Marshal(fields)
		if err != nil {
			t.Fatalf("vector %s: %v", v.name, err)
		}
		all = append(all, seed{v.name, b})
	}
	for i, s := range []string{
		`{`, `{}`, `{"type":"ErrorMsg","error":"x"}}`, `{"type":"ErrorMsg","error":"\ud83d"}`,
		`{"type":"ErrorMsg","error":"\u00"}`,
		`{"type":"Nobody","type":"ErrorMsg","error":1,"error":"x"}`, `{"type":"ErrorMsg","error":"` + "\xff" + `"}`,
		`{"type":"KVAdmitMsg","instance_id":"i","worker_id":0,"location":"","key":18446744073709551616}`,
		`{"type":"KVAdmitMsg","instance_id":"i","worker_id":-0,"location":"","key":-9223372036854775808}`,
		`{"type":"FullSyncStatusRetMsg","sync_id":"","is_complete":true,"global_progress":1e999,"can_exit_freeze":false}`,
		`{"x":` + strings.Repeat("[", 64), `{"x":` + strings.Repeat(`{"":`, 64),
	} {
		all = append(all, seed{fmt.Sprintf("attack-%02d", i), []byte(s)})
	}
	return all
}

// wantSeeds says which seeds belong to which target.
func wantSeeds(t *testing.T) map[string][]seed {
	vectors := goldenVectors(t)
	tagged := func(tags ...protocol.Tag) []seed {
		own := attacks()
		for _, v := range append(slices.Clone(vectors), foreigners(t, vectors)...) {
			tag, err := protocol.PeekTag(v.bytes, nil)
			if err != nil && !strings.HasPrefix(v.name, "twice-") { // It may be the tag.
				t.Fatalf("vector %s: %v", v.name, err)
			}
			if slices.Contains(tags, tag) {
				own = append(own, v)
			}
		}
		if len(own) == len(attacks()) {
			t.Fatalf("no vector has tag %v", tags)
		}
		return own
	}
	request := tagged(protocol.TagAllocRequest)
	response := tagged(protocol.TagAllocResponse, protocol.TagAscendAllocResponse)
	offer := tagged(protocol.TagPullReadyNotif)
	ack := tagged(protocol.TagPullReadyDoneAck)
	done := tagged(protocol.TagPullDoneSignal)
	renew := tagged(protocol.TagRenewRequest)
	renewed := tagged(protocol.TagRenewResponse)
	ended := tagged(protocol.TagEndRequest)
	query := tagged(protocol.TagCacheQueryRequest)
	cached := tagged(protocol.TagCacheQueryResponse)
	feed := tagged(protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg, protocol.TagBatchedKVOperationMsg)
	return map[string][]seed{
		"AgentAttach": tagged(protocol.TagAttachRequest, protocol.TagAttachResponse),
		"AgentCall": tagged(protocol.TagEngineCall, protocol.TagEngineAnswer, protocol.TagEngineShow,
			protocol.TagEngineShown, protocol.TagEngineReturned),
		"CacheQueryRequest":              query,
		"CacheQueryResponse":             cached,
		"DifferentialCacheQueryRequest":  query,
		"DifferentialCacheQueryResponse": cached,
		"PullReadyNotif":                 offer,
		"PullReadyDoneAck":               ack,
		"PullDoneSignal":                 done,
		"EndRequest":                     ended,
		"EndResponse":                    tagged(protocol.TagEndResponse),
		"DifferentialEndRequest":         ended,
		"RenewRequest":                   renew,
		"RenewResponse":                  renewed,
		"DifferentialPullReadyNotif":     offer,
		"DifferentialPullReadyDoneAck":   ack,
		"DifferentialPullDoneSignal":     done,
		"DifferentialRenewRequest":       renew,
		"DifferentialRenewResponse":      renewed,
		"AllocRequest":                   request,
		"AllocResponse":                  response,
		"DifferentialAllocRequest":       request,
		"DifferentialAllocResponse":      response,
		"ProxyNotif":                     tagged(protocol.TagProxyNotif),
		"HixlInitRequest":                tagged(protocol.TagHixlInitRequest),
		"HixlInitResponse":               tagged(protocol.TagHixlInitResponse),
		"HixlReadyRequest":               tagged(protocol.TagHixlReadyRequest),
		"HixlReadyResponse":              tagged(protocol.TagHixlReadyResponse),
		"HixlMemInfoRequest":             tagged(protocol.TagHixlMemInfoRequest),
		"HixlMemInfoResponse":            tagged(protocol.TagHixlMemInfoResponse),
		"P2PGet": tagged(protocol.TagAscendBatchedLookupAndGetMsg, protocol.TagAscendBatchedLookupAndGetRetMsg,
			protocol.TagBatchedLookupAndGetMsg, protocol.TagBatchedLookupAndGetRetMsg),
		"DifferentialP2PGet":      tagged(protocol.TagAscendBatchedLookupAndGetMsg),
		"DifferentialP2PGetReply": tagged(protocol.TagAscendBatchedLookupAndGetRetMsg),
		"P2PDone": tagged(protocol.TagAscendBatchedLookupAndGetDoneMsg, protocol.TagAscendBatchedLookupAndGetDoneRetMsg,
			protocol.TagAscendQueryDonePortMsg, protocol.TagAscendQueryDonePortRetMsg),
		"P2POther": tagged(protocol.TagAscendBatchedLookupAndPutMsg, protocol.TagBatchedLookupAndPutMsg,
			protocol.TagBatchedLookupAndPutRetMsg, protocol.TagP2PErrorMsg, protocol.TagP2PInitSideMsg,
			protocol.TagP2PInitSideRetMsg),
		"ControllerWorkers": tagged(protocol.TagRegisterMsg, protocol.TagRegisterRetMsg, protocol.TagDeRegisterMsg,
			protocol.TagHeartbeatMsg, protocol.TagHeartbeatRetMsg, protocol.TagErrorMsg),
		"ControllerLookup":           tagged(protocol.TagBatchedP2PLookupMsg, protocol.TagBatchedP2PLookupRetMsg),
		"ControllerFeed":             feed,
		"DifferentialControllerFeed": feed,
		"ControllerSync": tagged(protocol.TagFullSyncStartMsg, protocol.TagFullSyncStartRetMsg,
			protocol.TagFullSyncBatchMsg, protocol.TagFullSyncEndMsg, protocol.TagFullSyncStatusMsg,
			protocol.TagFullSyncStatusRetMsg),
		"ControllerControl": tagged(controls()...),
		"ControllerJSON":    inJSON(t, vectors),
		"PeekTag":           slices.Concat(attacks(), vectors, foreigners(t, vectors)),
		"Memory":            append(attacks(), vectors...),
		"Key": texts("key", "m@2@0@1f@bfloat16", "m@2@0@-2a@bfloat16", "org/model@8@7@00ff@fp8_e4m3fn@user%u1@tier%a%b",
			"vllm@m@2@0@1f@half", "m@2@0@1f@half@17", "m@02@0@1F@half", "@@@@", "m@2@0@1f@half@%", "\xff@1@0@0@half"),
		"PullID": texts("pull-id", "0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789abcdef",
			"0123456789abcdef0123456789abcde",
			"01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdeg", ""),
		"Nixl":      nixlSeeds(),
		"SharedLog": sharedLogs(),
		"AgentFrames": texts("frames", "\x02\x00\x00\x00ab\x00\x00\x00\x00", "\x01\x00\x00\x00a\x05\x00\x00\x00bcd",
			"\x01\x00\x00", "\xff\xff\xff\xffab"),
		"Endpoint": texts("endpoint", "10.0.0.1:7300", "[fe80::1%eth0]:65535", "::1:80", "tcp://h:1", "h:0", "h:+1", "[h]:1",
			":1", "h:01"),
	}
}

// texts are numbered under a name.
func texts(prefix string, texts ...string) (seeds []seed) {
	for i, s := range texts {
		seeds = append(seeds, seed{fmt.Sprintf("%s-%02d", prefix, i), []byte(s)})
	}
	return seeds
}

// nixlSeeds are one of each message, and what ends a reference's engine or listener.
func nixlSeeds() []seed {
	one := []uint64{4096}
	meta := (&protocol.NixlMetadata{
		EngineID: []byte("D"), Agent: []byte{1, 2}, BaseAddrs: []uint64{0x7f0000000000}, NumBlocks: 4, BlockLens: one,
		BlockStrides: one, Layout: []byte("LBHNC"), BlockSize: 16, Backend: []byte("FLASH_ATTN"), PerLogical: 1, DCPSize: 1,
		PCPSize: 1, Regions: protocol.NixlRegions{GroupIDs: []int64{-1}, HasGroupIDs: true, HasNames: true},
		Members: [][][]byte{{[]byte("l.0"), []byte("l.1")}},
		Packed:  []protocol.NixlPackedMember{{Layer: []byte("l.0"), PageBytes: 2048}},
	}).Append(nil)
	register := protocol.PushRegistration{
		RequestID: []byte("cmpl-u-0-0123abcd"), EngineID: []byte("D"), Host: []byte("10.0.0.2"), Port: 5601, TPSize: 2,
		Blocks: [][]uint64{{3, 127}, {}},
		Remote: protocol.PushProducer{EngineID: []byte("P"), Host: []byte("10.0.0.1"), Port: 5600, TPSize: 4, PPSize: 2},
	}
	extended := register
	extended.HasExt, extended.Ext = true, protocol.PushRegistrationExt{
		Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Operation: 3, Attempt: 1, Transfer: []byte("t"),
		First: []uint64{0, 4}, Ends: []uint64{0, 7}, Grant: 9, Generations: []uint64{1, 2}, GrantedNS: 5, LeaseNS: 6,
		PatienceNS: 7, Caches: 10, Stamps: protocol.Stamps{ClockNS: 8},
	}
	end := protocol.PushEnd{Version: 2, Incarnation: protocol.UUID{2}, Operation: 3, Code: 1, Reason: []byte("late")}
	off := protocol.PushWithdrawal{Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Operation: 3}
	keep := protocol.PushKeep{
		Version: 2, Incarnation: protocol.UUID{1}, To: protocol.UUID{2}, Keep: [][]byte{[]byte("a")},
		Skip: [][]byte{[]byte("b")},
	}
	flat := strings.Replace(string(register.Append(nil)), "ids\x92\x92\x03\x7f\x90", "ids\x92\x03\x7f", 1)
	return append([]seed{
		{"metadata", meta}, {"hello", (&protocol.NixlHello{Hash: []byte("31b38f"), Metadata: meta}).Append(nil)},
		{"question", (&protocol.NixlQuestion{PPRank: 1, TPRank: 3}).Append(nil)},
		{"clock", (&protocol.NixlClock{Seconds: 1.5}).Append(nil)}, {"registration", register.Append(nil)},
		{"registration-flat", []byte(flat)}, {"registration-extended", extended.Append(nil)}, {"end", end.Append(nil)},
		{"withdrawal", off.Append(nil)}, {"keep", keep.Append(nil)},
	}, texts("text", "cmpl-u-0-0123abcd:4", "HB:cmpl-u-0-89abcdef,cmpl-v-0-01234567", "HB:,,", "no colon", "r:x", "\xff:1",
		"PUSH_REG:\x80", "PUSH_REG:\xdf\xff\xff\xff\xff", "\x92\xa1x\x00", "HB:1")...)
}

// sharedLogs are one of each form, and frames.
func sharedLogs() []seed {
	subject := sharedlog.Subject{By: 7, Rank: 1, Instance: []byte("a")}
	frames := sharedlog.AppendFrame(sharedlog.AppendFrame(nil, sharedlog.Message, []byte("hello")), sharedlog.Want,
		subject.Append(nil))
	entry := (&sharedlog.Entry{Teller: 7, Nth: 3, Frames: frames}).Append(nil)
	return []seed{
		{"frames", frames}, {"entry", entry}, {"append", (&sharedlog.Request{Entry: entry, Keep: 100}).Append(nil)},
		{"read", (&sharedlog.Request{After: sharedlog.Position{Major: 1}, Most: 9}).Append(nil)},
		{"answer", (&sharedlog.Answer{Entries: []sharedlog.Stored{{Entry: entry}}}).Append(nil)},
		{"frame-beyond-the-end", []byte{1, 255, 255, 255, 255, 0}},
	}
}

// The seeds on disk are the ones above. Inputs that the fuzzer found stand beside them, under names
// of its own.
func TestSeeds(t *testing.T) {
	for target, seeds := range wantSeeds(t) {
		for _, s := range seeds {
			path := filepath.Join("seeds", target, s.name)
			want := fmt.Sprintf("%s%q)\n", corpusHead, s.bytes)
			if *rewriteSeeds {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s is not the seed it should be (%v); run with -rewrite-seeds", path, err)
			}
		}
	}
}

package protocol

import "testing"

// goldenAgent are the messages between an engine and the agent of its host.
var goldenAgent = map[string]Message{
	"agent-attach": &AttachRequest{Version: 1},
	"agent-attach-again": &AttachRequest{
		Version: 1, Name: []byte("vllm-0"), Session: 7, Incarnation: uuid1, Open: []uint64{3, 300},
	},
	"agent-attach-with-device": &AttachRequest{Version: 1, Name: []byte("vllm-0"), Process: 4_194_303},
	"agent-attach-and-adopt":   &AttachRequest{Version: 1, Name: []byte("vllm-0"), Adopts: true},
	"agent-attached-to-blocks": &AttachResponse{
		Version: 1, Session: 7, Incarnation: uuid1, PageBytes: 131072, Pages: 4096, Layers: 1, Window: 256, Keys: 4096,
		Bytes: 1 << 20, Sides: [][]byte{[]byte("blocks")}, Producer: []byte("10.0.0.1:7300:7400"), Format: FormatKV2LTD,
		Shape: goldenShape, Dtype: DtypeBFloat16,
	},
	"agent-attached-to-device": &AttachResponse{
		Version: 1, Session: 7, Incarnation: uuid1, Offset: 1 << 20, PageBytes: 18874368, Pages: 64, Layers: 1, Window: 256,
		Keys: 4096, Bytes: 1 << 20, Sides: [][]byte{[]byte("sender")}, DeviceKey: []byte("0123456789abcdef"), Device: 3,
		DeviceBytes: 1209008128, Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16,
	},
	"agent-attached": &AttachResponse{
		Version: 1, Session: 7, Incarnation: uuid1, Resumed: true, Offset: 4096, PageBytes: 18874368, Pages: 64, Layers: 36,
		Window: 256, Keys: 4096, Bytes: 1 << 20, Sides: [][]byte{[]byte("sender"), []byte("receiver"), []byte("sharing")},
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16,
	},
	"agent-attached-with-tenants": &AttachResponse{
		Version: 1, Session: 7, Incarnation: uuid1, PageBytes: 131072, Pages: 4096, Layers: 1, Window: 256, Keys: 4096,
		Bytes: 1 << 20, Sides: [][]byte{[]byte("sender")}, Tenants: true, Format: FormatKV2LTD, Shape: goldenShape,
		Dtype: DtypeBFloat16,
	},
	"agent-turned-away": &AttachResponse{
		Version: 1, Incarnation: uuid1, Code: 19, Reason: []byte("v is 2, and this agent's is 1"),
		Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16,
	},

	"agent-call-stats":   call(CallStats, EngineCall{ID: 1}),
	"agent-call-reserve": call(CallReserve, EngineCall{ID: 2, Done: []uint64{1}, Count: 3, PatienceNS: 2_500_000_000}),
	"agent-call-put": call(CallPut, EngineCall{
		ID: 3, Target: 2, Keys: goldenKeys, Request: []byte("17"), Host: []byte("10.0.0.1"), InitPort: 7300,
		AllocPort: 7400, First: 1, Tokens: 200, Last: true, PatienceNS: 2_500_000_000,
	}),
	"agent-call-recall": call(CallRecall, EngineCall{
		ID: 4, Target: 2, Keys: goldenKeys, Request: []byte("17"), Host: []byte("10.0.0.1"), InitPort: 7300,
		AllocPort: 7400, QueryPort: 7700,
	}),
	"agent-call-begin-prefill": call(CallBeginPrefill, EngineCall{
		ID: 5, Keys: goldenKeys, Request: []byte("17"), Host: []byte("10.0.0.1"), InitPort: 7300, AllocPort: 7400,
		Skip: 256, LayerNS: 1_500_000,
	}),
	"agent-call-save-layer": call(CallSaveLayer, EngineCall{ID: 300, Target: 2, Prefill: 5, Tokens: 512, Layer: 35}),
	"agent-call-get": call(CallGet, EngineCall{
		ID: 301, Done: []uint64{3, 300}, Keys: goldenKeys, Request: []byte("17"), Layered: true,
	}),
	"agent-call-register": call(CallRegister, EngineCall{
		ID: 302, Request: []byte("cmpl-u-0-0123abcd"), Transfer: []byte("t-1"), Engine: []byte("P"), Ranks: 2, Stages: 1,
		Producers: [][]byte{[]byte("10.0.0.1:7300:7400"), []byte("10.0.0.1:7301:7401")}, Groups: []uint64{0, 1},
		Firsts: []uint64{0, 16}, Ends: []uint64{2, 16}, Blocks: [][]uint64{{3, 300}, nil},
		PatienceNS: 2_500_000_000,
	}),
	"agent-call-end": call(CallEnd, EngineCall{
		ID: 31, Request: []byte("17"), Host: []byte("10.0.0.2"), InitPort: 7300, AllocPort: 7400, PatienceNS: 30_000_000_000,
		Code: 6, Reason: []byte("no pages"),
	}),
	"agent-call-finished": call(CallFinished, EngineCall{
		ID: 303, Request: []byte("cmpl-u-0-0123abcd"), Groups: []uint64{0, 1}, Firsts: []uint64{0, 0},
		Ends: []uint64{2, 1}, Blocks: [][]uint64{{3, 300}, {7}},
	}),

	"agent-answer": &EngineAnswer{ID: 1},
	"agent-answer-pages": &EngineAnswer{
		ID: 2, Pages: []uint64{5, 300}, Lengths: []uint64{18874368, 14745600}, Hits: 2,
	},
	"agent-answer-held": &EngineAnswer{
		ID: 3, Code: 1, Held: true, Sent: 1, Count: 1, Peer: []byte("10.0.0.1:7300"), Stage: []byte("transfer"),
		Remedy: []byte("raise put_timeout"),
	},
	"agent-answer-mismatch": &EngineAnswer{
		ID: 4, Code: 11, Peer: []byte("10.0.0.1:7300"), Field: []byte("layout.dtype"), Ours: []byte("half"),
		Theirs: []byte("bfloat16"), Said: goldenReason, Skipped: 1,
	},
	"agent-answer-stats": &EngineAnswer{ID: 300, Stats: []byte(`{"pages":64}`)},

	"agent-show":         &EngineShow{ID: 301, First: 16, Pages: []uint64{5, 300}, Lengths: []uint64{18874368, 14745600}},
	"agent-show-first":   &EngineShow{ID: 301, Pages: []uint64{5}, Lengths: []uint64{18874368}},
	"agent-shown":        &EngineShown{ID: 301, First: 16},
	"agent-shown-failed": &EngineShown{ID: 301, First: 16, Code: 12},
	"agent-returned":     &EngineReturned{ID: 300},
}

// call is a call for an operation.
func call(op CallOp, m EngineCall) *EngineCall {
	m.Op = []byte(op.String())
	return &m
}

// agentRefusals are refusals of messages between an engine and its agent.
func agentRefusals(t *testing.T) []refusal {
	one := []byte{1}
	in := func(name, of, field string, value []byte, code DecodeCode, says string) refusal {
		return refusal{name, of, withField(t, of, field, value), code, field, says}
	}
	return []refusal{
		in("version -1", "agent-attach", "v", []byte{0xff}, DecodeOutOfRange, "found -1, want 0 to 4294967295"),
		in("4,097 open calls", "agent-attach-again", "open", listOf(4097, one), DecodeArrayTooLong, "Limits.ArrayLen"),
		in("a life without dashes", "agent-attach-again", "life", str("6f1c2d3e4a5b6c7d8e9f001122334455"), DecodeBadUUID, ""),
		in("pages beyond 32 bits", "agent-attached", "pages", unhex(t, "cf0000000100000000"), DecodeOutOfRange, "4294967296"),
		in("format 9 of the pool", "agent-attached", "fmt", []byte{9}, DecodeUnknownFormat, "want 0 to 8"),
		in("no dtype of the pool", "agent-turned-away", "dtype", str(""), DecodeUnknownDtype, ""),
		in("a number of a call below 0", "agent-call-put", "id", []byte{0xff}, DecodeOutOfRange, "-1"),
		in("a name of an operation as a number", "agent-call-put", "op", one, DecodeWrongType, "found int, want str"),
		in("4,097 keys of a call", "agent-call-put", "keys", listOf(4097, str("k")), DecodeArrayTooLong, "Limits.ArrayLen"),
		in("4,097 calls that are done", "agent-call-get", "done", listOf(4097, one), DecodeArrayTooLong, "Limits.ArrayLen"),
		in("a port above all", "agent-call-put", "init_port", unhex(t, "ce00010000"), DecodeOutOfRange,
			"65536, want 0 to 65535"),
		in("an alloc port above all", "agent-call-put", "alloc_port", unhex(t, "ce00010000"), DecodeOutOfRange, "65536"),
		in("a query port above all", "agent-call-recall", "query_port", unhex(t, "ce00010000"), DecodeOutOfRange, "65536"),
		in("patience beyond 63 bits", "agent-call-put", "patience_ns", unhex(t, "cf8000000000000000"), DecodeOutOfRange, ""),
		in("time of a layer below 0", "agent-call-begin-prefill", "layer_ns", []byte{0xe0}, DecodeOutOfRange, "-32"),
		in("fewer groups than lists", "agent-call-register", "groups", listOf(1, one), DecodeLengthMismatch,
			"found 1 elements, want 2 as in blocks"),
		in("more firsts than lists", "agent-call-register", "firsts", listOf(3, one), DecodeLengthMismatch, "as in blocks"),
		in("fewer ends than lists", "agent-call-register", "ends", []byte{0x90}, DecodeLengthMismatch, "as in blocks"),
		in("no lists of blocks", "agent-call-register", "blocks", []byte{0x90}, DecodeLengthMismatch,
			"found 2 elements, want 0 as in blocks").at("groups"),
		in("4,097 groups of blocks", "agent-call-register", "blocks", listOf(4097, []byte{0x90}), DecodeArrayTooLong,
			"Limits.ArrayLen"),
		in("65,537 blocks", "agent-call-register", "blocks", append([]byte{0x91}, listOf(65537, one)...), DecodeArrayTooLong,
			"Limits.BlockCount"),
		in("fewer lengths than pages", "agent-answer-pages", "lengths", listOf(1, one), DecodeLengthMismatch,
			"found 1 elements, want 2 as in pages"),
		{
			"pages without lengths", "agent-answer-pages", withoutField(t, "agent-answer-pages", "lengths"),
			DecodeLengthMismatch, "lengths", "found 0 elements, want 2 as in pages",
		},
		in("stats as text", "agent-answer-stats", "stats", str("{}"), DecodeWrongType, "found str, want bin"),
		in("more lengths than pages shown", "agent-show", "lengths", listOf(3, one), DecodeLengthMismatch,
			"found 3 elements, want 2 as in pages"),
		in("a place below 0", "agent-shown", "first", []byte{0xff}, DecodeOutOfRange, "-1"),
		in("memory of no call", "agent-returned", "id", []byte{0xc0}, DecodeWrongType, "found nil, want int"),
	}
}

// Operations have the names that documents and clients know them by, and no two the same.
func TestCallOps(t *testing.T) {
	seen := map[string]bool{}
	for _, op := range CallOps() {
		name := op.String()
		if name == "" || seen[name] || ParseCallOp([]byte(name)) != op {
			t.Errorf("operation %d is %q, which is %d", op, name, ParseCallOp([]byte(name)))
		}
		seen[name] = true
	}
	for _, name := range []string{"", "Put", "put ", "free"} {
		if op := ParseCallOp([]byte(name)); op != CallUnknown {
			t.Errorf("%q is %v", name, op)
		}
	}
	if got := callOps.String(); got != "CallOp("+integerText(uint64(callOps), false)+")" {
		t.Error(got)
	}
}

// What an operation does not take is refused by its name, and what it takes is not; a field of 0 is none.
func TestUnfitFields(t *testing.T) {
	full := *call(CallUnknown, EngineCall{
		ID: 1, Done: []uint64{1}, Target: 1, Prefill: 1, Keys: goldenKeys, Domain: []byte("d"),
		Request: []byte("r"), Transfer: []byte("t"),
		Engine: []byte("e"), Host: []byte("h"), InitPort: 1, AllocPort: 1, QueryPort: 1, First: 1, Count: 1, Tokens: 1,
		Layer: 1, Skip: 1, Last: true, Layered: true, PatienceNS: 1, LayerNS: 1, Trace: []byte{1}, Ranks: 1, Stages: 1,
		Producers: goldenKeys, Groups: []uint64{1}, Firsts: []uint64{1}, Ends: []uint64{1}, Blocks: [][]uint64{{1}},
		Code: 1, Reason: []byte("r"), Tenant: []byte("1"),
	})
	names := engineCallSchema.names
	if got := full.fieldMask(); got != 1<<len(names)-1 {
		t.Fatalf("of %d fields it has %b", len(names), got)
	}
	for _, op := range CallOps() {
		full.Op = []byte(op.String())
		for i, e := range entries(t, full.Append(nil)) {
			b := join([]entry{{tagField, str("KvfCall")}, {"id", []byte{1}}, {"op", str(op.String())}, e}, false)
			if i <= 1 || e.name == "op" {
				continue
			}
			var m EngineCall
			if err := m.Decode(b, nil); err != nil && !isMismatch(err) {
				t.Fatal(err)
			}
			want := ""
			if callFields[op]&(1<<i) == 0 {
				want = names[i]
			}
			if got := m.UnexpectedField(); got != want {
				t.Errorf("%v with %s: %q does not fit, want %q", op, e.name, got, want)
			}
		}
		none := EngineCall{Op: full.Op}
		if got := none.UnexpectedField(); got != "" {
			t.Errorf("%v does not take %q, which is not there", op, got)
		}
	}
}

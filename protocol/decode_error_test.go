package protocol

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// withField returns a golden payload with one field's value replaced.
func withField(t *testing.T, name, field string, value []byte) []byte {
	t.Helper()
	es := entries(t, golden[name].Append(nil))
	for i := range es {
		if es[i].name == field {
			es[i].value = value
			return join(es, false)
		}
	}
	t.Fatalf("vector %s has no field %s", name, field)
	return nil
}

// withoutField is a vector without one of its fields.
func withoutField(t *testing.T, name, field string) []byte {
	t.Helper()
	es := entries(t, golden[name].Append(nil))
	return join(slices.DeleteFunc(es, func(e entry) bool { return e.name == field }), false)
}

func str(s string) []byte { return appendStr(nil, s) }

func listOf(n int, value []byte) []byte {
	return append(appendArrayHeader(nil, n), bytes.Repeat(value, n)...)
}

// nested is a list in a list, levels deep.
func nested(levels int) []byte { return append(bytes.Repeat([]byte{0x91}, levels), 0x90) }

// extended adds an unknown field to a ProxyNotif.
func extended(value []byte) []byte {
	b := (&ProxyNotif{RequestID: []byte("17")}).Append(nil)
	b[0]++
	return append(append(b, 0xa1, 'x'), value...)
}

// A refusal is a payload that a decoder must refuse, and how.
type refusal struct {
	name    string
	of      string // the golden message whose decoder is used
	payload []byte
	code    DecodeCode
	field   string
	says    string // part of the text
}

func TestEveryRefusalNamesItsField(t *testing.T) {
	huge := unhex(t, "cfffffffffffffffff")
	uuidText := str(uuid1.String())
	tests := []refusal{
		{"empty frame", "alloc-response-ascend", nil, DecodeEmpty, "", "the peer failed while serving"},
		{"long message", "proxy-notif", make([]byte, 1<<20+1), DecodeMessageTooLong, "",
			"1048577 bytes, want at most 1048576 (Limits.MessageBytes)"},
		{"list for a map", "proxy-notif", []byte{0x90}, DecodeWrongType, "", "found array, want map"},
		{"reserved byte", "proxy-notif", extended([]byte{0xc1}), DecodeReserved, `"x"`, "0xc1"},
		{"reserved byte in a known field", "proxy-notif", withField(t, "proxy-notif", "req_id", []byte{0xc1}), DecodeReserved,
			"req_id", "0xc1"},

		{"map claims 2^32-1", "proxy-notif", unhex(t, "dfffffffff"), DecodeTruncated, "", "5 bytes to the end, want more"},
		{"map of 65", "proxy-notif", append([]byte{0xde, 0, 65}, make([]byte, 130)...), DecodeMapTooLong, "",
			"65 fields, want at most 64 (Limits.MapLen)"},
		{"list claims 2^32-1", "alloc-request", withField(t, "alloc-request", "keys", unhex(t, "ddffffffff")), DecodeTruncated,
			"keys", ""},
		{"text claims 2^32-1", "proxy-notif", withField(t, "proxy-notif", "req_id", unhex(t, "dbffffffff")), DecodeTruncated,
			"req_id", ""},
		{"bin claims 2^32-1", "hixl-init-response-ext",
			withField(t, "hixl-init-response-ext", "kvf_blobs", unhex(t, "92c6ffffffff")), DecodeTruncated, "kvf_blobs", ""},
		{"unknown list claims 2^32-1", "proxy-notif", extended(unhex(t, "ddffffffff")), DecodeTruncated, `"x"`, ""},
		{"unknown map claims 2^32-1", "proxy-notif", extended(unhex(t, "dfffffffff")), DecodeTruncated, `"x"`, ""},
		{"unknown ext claims 2^32-1", "proxy-notif", extended(unhex(t, "c9ffffffff01")), DecodeTruncated, `"x"`, ""},

		{"long key", "alloc-request", withField(t, "alloc-request", "keys", listOf(1, str(strings.Repeat("k", 513)))),
			DecodeStringTooLong, "keys", "513 bytes, want at most 512 (Limits.KeyBytes)"},
		{"long text", "proxy-notif", withField(t, "proxy-notif", "req_id", str(strings.Repeat("1", 1025))), DecodeStringTooLong,
			"req_id", "Limits.StringBytes"},
		{"long field name", "proxy-notif", append([]byte{0x82}, append(str(strings.Repeat("n", 1025)), 0)...),
			DecodeStringTooLong, "", ""},
		{"long blob", "hixl-init-response-ext",
			withField(t, "hixl-init-response-ext", "kvf_blobs", listOf(2, appendBin(nil, make([]byte, 16<<10+1)))), DecodeBlobTooLong,
			"kvf_blobs", "Limits.BlobBytes"},
		{"4,097 keys", "alloc-request", withField(t, "alloc-request", "keys", listOf(4097, str("k"))), DecodeArrayTooLong, "keys",
			"4097 elements, want at most 4096 (Limits.ArrayLen)"},
		{"4,097 pages", "alloc-response-ascend", withField(t, "alloc-response-ascend", "remote_indexes", listOf(4097, []byte{1})),
			DecodeArrayTooLong, "remote_indexes", ""},
		{"4,097 buffer uuids", "alloc-response-ascend",
			withField(t, "alloc-response-ascend", "remote_buffer_uuids", listOf(4097, uuidText)), DecodeArrayTooLong,
			"remote_buffer_uuids", ""},
		{"4,097 commits", "alloc-request-ext", withField(t, "alloc-request-ext", "kvf_commit", listOf(4097, []byte{1})),
			DecodeArrayTooLong, "kvf_commit", ""},
		{"five dimensions", "alloc-request", withField(t, "alloc-request", "shape", listOf(5, []byte{1})), DecodeArrayTooLong,
			"shape", "5 elements, want at most 4"},
		{"17 planes", "hixl-init-request-ext", withField(t, "hixl-init-request-ext", "kvf_planes", listOf(17, str("p"))),
			DecodeArrayTooLong, "kvf_planes", "Limits.PlaneCount"},
		{"257 buffers", "hixl-mem-info-response", withField(t, "hixl-mem-info-response", "buffers", listOf(257, []byte{0x80})),
			DecodeArrayTooLong, "buffers", "Limits.BufferCount"},
		{"nine levels", "proxy-notif", extended(nested(7)), DecodeTooDeep, `"x"`, "9 levels, want at most 8 (Limits.Depth)"},

		{"negative tokens", "alloc-request", withField(t, "alloc-request", "last_chunk_toks", []byte{0xff}), DecodeOutOfRange,
			"last_chunk_toks", "found -1, want 0 to 4294967295"},
		{"tokens beyond 32 bits", "alloc-request",
			withField(t, "alloc-request", "last_chunk_toks", unhex(t, "cf0000000100000000")), DecodeOutOfRange, "last_chunk_toks",
			"4294967296"},
		{"negative dimension", "alloc-request", withField(t, "alloc-request", "shape", unhex(t, "91d0ff")), DecodeOutOfRange,
			"shape", ""},
		{"page beyond 63 bits", "alloc-response-ascend",
			withField(t, "alloc-response-ascend", "remote_indexes", append([]byte{0x91}, huge...)), DecodeOutOfRange,
			"remote_indexes", "18446744073709551615"},
		{"negative grant", "alloc-response-ascend-ext", withField(t, "alloc-response-ascend-ext", "kvf_grant", []byte{0xe0}),
			DecodeOutOfRange, "kvf_grant", "-32"},
		{"negative pointer", "hixl-mem-info-request",
			bytes.Replace(golden["hixl-mem-info-request"].Append(nil), unhex(t, "cf00007f0000000000"),
				unhex(t, "d3ffffffffffffffff"), 1), DecodeOutOfRange, "buffer_ptr", "PeerBufferInfo.buffer_ptr"},
		{"versions turned round", "hixl-init-request-ext", withField(t, "hixl-init-request-ext", "kvf_proto", []byte{0x92, 2, 1}),
			DecodeOutOfRange, "kvf_proto", "2 to 1"},

		{"key not utf-8", "alloc-request", withField(t, "alloc-request", "keys", unhex(t, "92a16ba2c328")), DecodeInvalidUTF8,
			"keys", `"\xc3("`},
		{"surrogate", "proxy-notif", withField(t, "proxy-notif", "req_id", unhex(t, "a3eda080")), DecodeInvalidUTF8, "req_id", ""},
		{"field name not utf-8", "proxy-notif", unhex(t, "81a1ff00"), DecodeInvalidUTF8, "", ""},

		{"no tag", "proxy-notif", unhex(t, "81a6"+"7265715f6964"+"a23137"), DecodeMissingTag, "type", ""},
		{
			"tag nobody knows", "proxy-notif", withField(t, "proxy-notif", "type", str("CancelNotif")),
			DecodeUnknownTag, "type", `"CancelNotif"`,
		},
		{"tag of another message", "proxy-notif", golden["alloc-request"].Append(nil), DecodeWrongTag, "type",
			"found AllocRequest, want ProxyNotif"},
		{"tag of no reply", "alloc-response-sync", golden["alloc-request"].Append(nil), DecodeWrongTag, "type",
			"want AscendAllocResponse or AllocResponse"},
		{"tag as bin", "proxy-notif", withField(t, "proxy-notif", "type", []byte("\xc4\x0aProxyNotif")), DecodeWrongType, "type",
			"found bin, want str"},

		{"4,097 offered keys", "pull-ready-notif", withField(t, "pull-ready-notif", "keys", listOf(4097, str("k"))),
			DecodeArrayTooLong, "keys", "Limits.ArrayLen"},
		{"4,097 offered pages", "pull-ready-notif",
			withField(t, "pull-ready-notif", "sender_mem_indexes", listOf(4097, []byte{1})), DecodeArrayTooLong, "sender_mem_indexes",
			""},
		{"4,097 offered buffer uuids", "pull-ready-notif",
			withField(t, "pull-ready-notif", "sender_buffer_uuids", listOf(4097, uuidText)), DecodeArrayTooLong,
			"sender_buffer_uuids", ""},
		{"4,097 withdrawals", "pull-ready-notif-ext",
			withField(t, "pull-ready-notif-ext", "kvf_withdraw", listOf(4097, str(pullID1.String()))), DecodeArrayTooLong,
			"kvf_withdraw", ""},
		{"4,097 renewals", "renew-request", withField(t, "renew-request", "kvf_grants", listOf(4097, []byte{1})),
			DecodeArrayTooLong, "kvf_grants", ""},
		{"long done url", "pull-ready-notif", withField(t, "pull-ready-notif", "sender_done_url", str(strings.Repeat("h", 1025))),
			DecodeStringTooLong, "sender_done_url", "Limits.StringBytes"},
		{"long offered key", "pull-ready-notif",
			withField(t, "pull-ready-notif", "keys", listOf(2, str(strings.Repeat("k", 513)))), DecodeStringTooLong, "keys",
			"Limits.KeyBytes"},
		{"grant before the clock began", "pull-ready-notif-ext",
			withField(t, "pull-ready-notif-ext", "kvf_granted_ns", []byte{0xff}), DecodeOutOfRange, "kvf_granted_ns",
			"found -1, want 0 to 9223372036854775807"},
		{"clock beyond 63 bits", "pull-ready-done-ack-delayed",
			withField(t, "pull-ready-done-ack-delayed", "kvf_clock_ns", unhex(t, "cf8000000000000000")), DecodeOutOfRange,
			"kvf_clock_ns", "9223372036854775808"},
		{"negative echo", "hixl-mem-info-request-clock", withField(t, "hixl-mem-info-request-clock", "kvf_echo_ns", []byte{0xe0}),
			DecodeOutOfRange, "kvf_echo_ns", "-32"},
		{"negative missing", "pull-done-signal-missing", withField(t, "pull-done-signal-missing", "kvf_missing", []byte{0xff}),
			DecodeOutOfRange, "kvf_missing", ""},
		{"page offered beyond 63 bits", "pull-ready-notif",
			withField(t, "pull-ready-notif", "sender_mem_indexes", append([]byte{0x92, 1}, huge...)), DecodeOutOfRange,
			"sender_mem_indexes", ""},

		{"format 9", "alloc-request", withField(t, "alloc-request", "fmt", []byte{9}), DecodeUnknownFormat, "fmt",
			"found 9, want 0 to 8"},
		{"format -1", "alloc-request", withField(t, "alloc-request", "fmt", []byte{0xff}), DecodeUnknownFormat, "fmt", "-1"},
		{"format 256", "hixl-init-request-ext", withField(t, "hixl-init-request-ext", "kvf_fmt", []byte{0xcd, 1, 0}),
			DecodeUnknownFormat, "kvf_fmt", "256"},
		{"dtype torch.half", "alloc-request", withField(t, "alloc-request", "dtype", str("torch.half")), DecodeUnknownDtype,
			"dtype", `"torch.half"`},
		{"no dtype", "alloc-request", withField(t, "alloc-request", "dtype", str("")), DecodeUnknownDtype, "dtype", ""},

		{"uuid without dashes", "alloc-response-ascend",
			withField(t, "alloc-response-ascend", "remote_buffer_uuids", listOf(1, str(strings.ReplaceAll(uuid1.String(), "-", "")))),
			DecodeBadUUID, "remote_buffer_uuids", "8-4-4-4-12"},
		{"uuid with a g", "alloc-request-ext", withField(t, "alloc-request-ext", "kvf_inc", str("g"+uuid1.String()[1:])),
			DecodeBadUUID, "kvf_inc", ""},
		{"uuid with a dash moved", "alloc-request-ext",
			withField(t, "alloc-request-ext", "kvf_to", str("6f1c2d3e4-a5b-6c7d-8e9f-001122334455")), DecodeBadUUID, "kvf_to", ""},

		{"pull id in upper case", "pull-done-signal",
			withField(t, "pull-done-signal", "pull_id", str("0123456789ABCDEF0123456789abcdef")), DecodeBadPullID, "pull_id",
			"want 32 hex digits in lower case"},
		{"pull id with dashes", "pull-ready-notif", withField(t, "pull-ready-notif", "pull_id", uuidText), DecodeBadPullID,
			"pull_id", ""},
		{"pull id of 31 digits", "pull-ready-notif", withField(t, "pull-ready-notif", "pull_id", str(pullID1.String()[1:])),
			DecodeBadPullID, "pull_id", ""},
		{"no pull id withdrawn", "pull-ready-notif-ext", withField(t, "pull-ready-notif-ext", "kvf_withdraw", listOf(1, str(""))),
			DecodeBadPullID, "kvf_withdraw", ""},

		{"fewer buffers than keys", "pull-ready-notif",
			withField(t, "pull-ready-notif", "sender_buffer_uuids", listOf(1, uuidText)), DecodeLengthMismatch, "sender_buffer_uuids",
			"found 1 elements, want 2 as in keys"},
		{"more pages than keys", "pull-ready-notif", withField(t, "pull-ready-notif", "sender_mem_indexes", listOf(3, []byte{1})),
			DecodeLengthMismatch, "sender_mem_indexes", "found 3 elements, want 2 as in keys"},
		{"fewer keys than all else", "pull-ready-notif", withField(t, "pull-ready-notif", "keys", []byte{0x90}),
			DecodeLengthMismatch, "sender_buffer_uuids", "found 2 elements, want 0 as in keys"},
		{"more generations than keys", "pull-ready-notif-ext",
			withField(t, "pull-ready-notif-ext", "kvf_gens", listOf(3, []byte{1})), DecodeLengthMismatch, "kvf_gens",
			"found 3 elements, want 2 as in keys"},

		{
			"fewer pages than cached keys", "cache-query-response",
			withField(t, "cache-query-response", "cached_indexes", []byte{0x91, 1}),
			DecodeLengthMismatch, "cached_indexes", "found 1 elements, want 2 as in cached_keys",
		},
		{
			"fewer generations than cached keys", "cache-query-response-ext",
			withField(t, "cache-query-response-ext", "kvf_gens", []byte{0x91, 1}),
			DecodeLengthMismatch, "kvf_gens", "found 1 elements, want 2 as in cached_keys",
		},
		{
			"more lengths than cached keys", "cache-query-response-ext",
			withField(t, "cache-query-response-ext", "kvf_lengths", listOf(3, []byte{1})),
			DecodeLengthMismatch, "kvf_lengths", "found 3 elements, want 2 as in cached_keys",
		},

		{"fewer uuids than pages", "alloc-response-ascend",
			withField(t, "alloc-response-ascend", "remote_indexes", []byte{0x92, 1, 2}), DecodeLengthMismatch, "remote_buffer_uuids",
			"1 elements, want 2 as in remote_indexes"},
		{"fewer generations than pages", "alloc-response-ascend-ext",
			withField(t, "alloc-response-ascend-ext", "kvf_gens", []byte{0x91, 1}), DecodeLengthMismatch, "kvf_gens", ""},
		{"three versions", "hixl-init-request-ext", withField(t, "hixl-init-request-ext", "kvf_proto", []byte{0x93, 1, 2, 3}),
			DecodeArrayTooLong, "kvf_proto", ""},
		{"one version", "hixl-init-request-ext", withField(t, "hixl-init-request-ext", "kvf_proto", []byte{0x91, 1}),
			DecodeLengthMismatch, "kvf_proto", ""},
		{"a layout without dtype", "hixl-init-request-ext",
			withoutField(t, "hixl-init-request-ext", "kvf_dtype"), DecodeMissingField, "kvf_dtype", ""},
		{"a layout without shape", "hixl-init-response-ext",
			withoutField(t, "hixl-init-response-ext", "kvf_shape"), DecodeMissingField, "kvf_shape", ""},
		{"fewer blobs than planes", "hixl-init-response-ext",
			withField(t, "hixl-init-response-ext", "kvf_blobs", []byte{0x91, 0xc4, 0}), DecodeLengthMismatch, "kvf_blobs",
			"2 as in kvf_planes"},

		{"second field of a buffer", "hixl-mem-info-response",
			withField(t, "hixl-mem-info-response", "buffers",
				append([]byte{0x91, 0x82}, append(append(str("page_size"), 1), append(str("page_size"), 1)...)...)),
			DecodeDuplicateField, "page_size", "PeerBufferInfo.page_size"},
		{"buffer without address", "hixl-mem-info-response",
			withField(t, "hixl-mem-info-response", "buffers", append([]byte{0x91, 0x81}, append(str("uuid"), uuidText...)...)),
			DecodeMissingField, "buffer_ptr", ""},
		{"missing field", "proxy-notif", append([]byte{0x81}, append(str("type"), str("ProxyNotif")...)...),
			DecodeMissingField, "req_id", "ProxyNotif.req_id at byte 17: missing field"},
		{"trailing byte", "proxy-notif", append(golden["proxy-notif"].Append(nil), 0), DecodeTrailing, "",
			"at byte 27: trailing bytes: found 1 bytes"},
	}
	hit := map[DecodeCode]bool{}
	for _, test := range slices.Concat(tests, shareRefusals(t), agentRefusals(t)) {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, golden[test.of], test.payload, test.code, test.field)
			_, err := decode(golden[test.of], test.payload)
			if got := err.Error(); !strings.Contains(got, test.says) || strings.ToLower(got[:6]) != got[:6] {
				t.Errorf("got %q, want it to say %q", got, test.says)
			}
		})
		hit[test.code] = true
	}
	for c := DecodeCode(1); c < decodeCodes; c++ {
		if !hit[c] {
			t.Errorf("no test for %v", c)
		}
	}
}

func TestRefusalOfTheTagScan(t *testing.T) {
	tests := []struct {
		name    string
		payload []byte
		code    DecodeCode
	}{
		{"empty", nil, DecodeEmpty},
		{"long", make([]byte, 1<<20+1), DecodeMessageTooLong},
		{"no map", []byte{0x07}, DecodeWrongType},
		{"no tag", []byte{0x80}, DecodeMissingTag},
		{"two tags", append([]byte{0x82}, bytes.Repeat(append(str("type"), str("ProxyNotif")...), 2)...),
			DecodeDuplicateField},
		{"unknown tag", append([]byte{0x81}, append(str("type"), str("X")...)...), DecodeUnknownTag},
		{"unsound value", extended([]byte{0xc1}), DecodeReserved},
		{"deep value", extended(nested(7)), DecodeTooDeep},
		{"trailing", append(golden["proxy-notif"].Append(nil), 0), DecodeTrailing},
	}
	for _, test := range tests {
		_, err := PeekTag(test.payload, nil)
		var refused *DecodeError
		if !errors.As(err, &refused) || refused.Code != test.code {
			t.Errorf("%s: got %v, want %v", test.name, err, test.code)
		}
	}
}

// The limits are the caller's, and each is the bound it says it is.
func TestLimitsAreBounds(t *testing.T) {
	payload := golden["alloc-request"].Append(nil)
	tests := []struct {
		name  string
		of    string
		limit func(*Limits) *int
		fits  int
		code  DecodeCode
	}{
		{"MessageBytes", "alloc-request", func(l *Limits) *int { return &l.MessageBytes }, len(payload),
			DecodeMessageTooLong},
		{"KeyBytes", "alloc-request", func(l *Limits) *int { return &l.KeyBytes }, len("m@2@0@-2a@bfloat16"),
			DecodeStringTooLong},
		{"StringBytes", "alloc-request", func(l *Limits) *int { return &l.StringBytes }, len("last_chunk_toks"),
			DecodeStringTooLong},
		{"ArrayLen", "alloc-request", func(l *Limits) *int { return &l.ArrayLen }, 2, DecodeArrayTooLong},
		{"MapLen", "alloc-request", func(l *Limits) *int { return &l.MapLen }, 6, DecodeMapTooLong},
		{"BlobBytes", "hixl-init-response-ext", func(l *Limits) *int { return &l.BlobBytes }, 2, DecodeBlobTooLong},
		{"PlaneCount", "hixl-init-response-ext", func(l *Limits) *int { return &l.PlaneCount }, 2, DecodeArrayTooLong},
		{"HashCount", "sync-batch", func(l *Limits) *int { return &l.HashCount }, 2, DecodeArrayTooLong},
		{"HolderCount", "p2p-lookup-ret-two", func(l *Limits) *int { return &l.HolderCount }, 2, DecodeArrayTooLong},
		{"OperationCount", "kv-batch", func(l *Limits) *int { return &l.OperationCount }, 2, DecodeArrayTooLong},
		{"CommandCount", "heartbeat-ret-none", func(l *Limits) *int { return &l.CommandCount }, 2, DecodeArrayTooLong},
		{"BlockCount", "agent-call-finished", func(l *Limits) *int { return &l.BlockCount }, 3, DecodeArrayTooLong},
		{"BufferCount", "hixl-mem-info-request", func(l *Limits) *int { return &l.BufferCount }, 1, DecodeArrayTooLong},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			payload := golden[test.of].Append(nil)
			lim := DefaultLimits()
			*test.limit(&lim) = test.fits
			got := NewMessage(tagOf(golden[test.of]))
			if err := got.Decode(payload, &lim); err != nil {
				t.Errorf("at the limit: %v", err)
			}
			for _, less := range []int{test.fits - 1, 0, -1} {
				*test.limit(&lim) = less
				var refused *DecodeError
				if err := got.Decode(payload, &lim); !errors.As(err, &refused) || refused.Code != test.code {
					t.Errorf("limit %d: got %v, want %v", less, err, test.code)
				}
			}
		})
	}
	t.Run("Depth", func(t *testing.T) {
		lim := DefaultLimits()
		for lim.Depth = 2; lim.Depth <= depthMax+8; lim.Depth++ {
			real := min(lim.Depth, depthMax)
			if err := new(ProxyNotif).Decode(extended(nested(real-2)), &lim); err != nil {
				t.Errorf("depth %d: %v", lim.Depth, err)
			}
			if err := new(ProxyNotif).Decode(extended(nested(real-1)), &lim); err == nil {
				t.Errorf("depth %d: one level more is accepted", lim.Depth)
			}
		}
	})
}

// A peer cannot make a log line long, and an error outlives the bytes it is about.
func TestErrorsAreBoundedCopies(t *testing.T) {
	payload := withField(t, "alloc-request", "dtype", str(strings.Repeat("\x01é", 300)))
	err := new(AllocRequest).Decode(payload, nil)
	before := err.Error()
	clear(payload)
	if after := err.Error(); after != before {
		t.Errorf("the error changed with the bytes: %q", after)
	}
	if len(before) > 512 {
		t.Errorf("%d bytes: %s", len(before), before)
	}
}

func TestCodesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for c := DecodeCode(1); c < decodeCodes; c++ {
		if s := c.String(); s == "" || seen[s] || decodeTexts[c].remedy == "" {
			t.Errorf("code %d: name %q", c, s)
		}
		seen[c.String()] = true
	}
	if got := DecodeCode(200).String(); got != "DecodeCode(200)" {
		t.Error(got)
	}
}

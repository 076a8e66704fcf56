package protocol

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

// operation is one of a batch, as a map with these values.
func operation(typ, key, seq []byte) []byte {
	b := append(str("op_type"), typ...)
	b = append(append(b, str("key")...), key...)
	return append(append(append([]byte{0x91, 0x83}, b...), str("seq_num")...), seq...)
}

// layout is one holder, as an array of these values.
func layout(values ...[]byte) []byte {
	return append(appendArrayHeader([]byte{0x91}, len(values)), bytes.Join(values, nil)...)
}

// at is the same refusal, which names another field than the one with the value.
func (r refusal) at(field string) refusal {
	r.field = field
	return r
}

// shareRefusals are refusals of messages between peers, and between a worker and its controller.
func shareRefusals(t *testing.T) []refusal {
	uuidText, one, empty := str(uuid1.String()), []byte{1}, []byte{0xa0}
	command := func(fields string) []byte { return append([]byte{0x91}, fields...) }
	in := func(name, of, field string, value []byte, code DecodeCode, says string) refusal {
		return refusal{name, of, withField(t, of, field, value), code, field, says}
	}
	tests := []refusal{
		in("fewer pages than keys to push", "p2p-get-push", "mem_indexes", listOf(1, one),
			DecodeLengthMismatch, "found 1 elements, want 2 as in keys"),
		in("fewer buffers than pages to push", "p2p-get-push", "buffer_uuids", listOf(1, uuidText),
			DecodeLengthMismatch, "found 1 elements, want 2 as in mem_indexes"),
		in("buffers without pages", "p2p-get-pull", "buffer_uuids", listOf(1, uuidText),
			DecodeLengthMismatch, "want 0 as in mem_indexes"),
		in("more generations than pages to push", "p2p-get-push-ext", "kvf_gens", listOf(3, one),
			DecodeLengthMismatch, "want 2 as in mem_indexes"),
		in("more pages than hits", "p2p-get-ret-leased", "num_hit_chunks", one,
			DecodeLengthMismatch, "found 2 elements, want 1 as in num_hit_chunks").at("remote_mem_indexes"),
		{
			"pages without buffers", "p2p-get-ret-leased", withoutField(t, "p2p-get-ret-leased", "remote_buffer_uuids"),
			DecodeLengthMismatch, "remote_buffer_uuids", "found 0 elements, want 2",
		},
		in("fewer generations than hits", "p2p-get-ret-ext", "kvf_gens", listOf(1, one),
			DecodeLengthMismatch, "want 2 as in remote_mem_indexes"),
		in("negative hits", "p2p-get-ret-miss", "num_hit_chunks", []byte{0xff}, DecodeOutOfRange, "-1"),
		in("a lease as text", "p2p-get-ret-miss", "lease_ttl_s", str("60"), DecodeWrongType, "found str, want float"),
		in("a lease cut short", "p2p-get-ret-miss", "lease_ttl_s", []byte{0xcb, 0}, DecodeTruncated, ""),
		in("4,097 keys looked up", "p2p-get-pull", "keys", listOf(4097, str("k")),
			DecodeArrayTooLong, "Limits.ArrayLen"),
		in("fewer pages than keys to upstream", "p2p-upstream-get", "mem_indexes", []byte{0x90},
			DecodeLengthMismatch, ""),
		in("fewer offsets than keys", "p2p-put", "offsets", listOf(1, one), DecodeLengthMismatch, ""),
		in("fewer pages than keys put", "p2p-put", "mem_indexes", listOf(1, one), DecodeLengthMismatch, ""),
		in("fewer buffers than keys put", "p2p-put", "buffer_uuids", listOf(1, uuidText), DecodeLengthMismatch, ""),
		in("a grant before the requester's clock began", "p2p-get-push-ext", "kvf_granted_ns", []byte{0xff},
			DecodeOutOfRange, ""),
		in("a grant beyond 63 bits of clock", "p2p-get-push-ext", "kvf_granted_ns", unhex(t, "cf8000000000000000"),
			DecodeOutOfRange, ""),
		in("error 0", "p2p-error", "error_code", []byte{0}, DecodeUnknownValue, "found 0, want 1 to 3"),
		in("error 4", "p2p-error", "error_code", []byte{4}, DecodeUnknownValue, "found 4"),
		in("error -1", "p2p-error", "error_code", []byte{0xff}, DecodeUnknownValue, "found -1"),

		in("port beyond 16 bits", "register", "port", unhex(t, "ce00010000"),
			DecodeOutOfRange, "65536, want 0 to 65535"),
		in("worker -1", "register", "worker_id", []byte{0xff}, DecodeOutOfRange, "-1"),
		in("batches beyond 32 bits", "sync-start", "batch_count", unhex(t, "cf0000000100000000"),
			DecodeOutOfRange, "4294967296"),
		in("a batch beyond 32 bits", "sync-batch", "batch_id", unhex(t, "cf0000000100000000"), DecodeOutOfRange, ""),
		in("operation nobody knows", "kv-batch", "operations", operation(str("move"), one, one),
			DecodeUnknownValue, `KVOpEvent.op_type`).at("op_type"),
		in("negative sequence number", "kv-batch", "operations", operation(str("admit"), one, []byte{0xff}),
			DecodeOutOfRange, "-1").at("seq_num"),
		in("operation without a key", "kv-batch", "operations", []byte("\x91\x82\xa7op_type\xa5admit\xa7seq_num\x00"),
			DecodeMissingField, "").at("key"),
		in("operation that is no map, after one", "kv-batch", "operations",
			append(append([]byte{0x92}, operation(str("admit"), one, one)[1:]...), 7),
			DecodeWrongType, "KVOpEvent.operations"),
		in("4,097 operations", "kv-batch", "operations", listOf(4097, []byte{0x80}),
			DecodeArrayTooLong, "Limits.OperationCount"),
		in("65,537 hashes", "p2p-lookup", "hashes", listOf(65537, one), DecodeArrayTooLong, "Limits.HashCount"),
		in("hash of 72 bits", "sync-batch", "keys", unhex(t, "91c409000000000000000000"),
			DecodeWrongType, "found bin, want int"),
		in("holder of three", "p2p-lookup-ret", "layout_info", layout(empty, empty, one),
			DecodeLengthMismatch, "3 elements, want 4"),
		in("holder of five", "p2p-lookup-ret", "layout_info", layout(empty, empty, one, empty, empty),
			DecodeArrayTooLong, "5 elements, want at most 4"),
		in("holder with hits as text", "p2p-lookup-ret", "layout_info", layout(empty, empty, empty, empty),
			DecodeWrongType, "found str, want int"),
		in("257 holders", "p2p-lookup-ret", "layout_info", listOf(257, []byte{0x90}),
			DecodeArrayTooLong, "Limits.HolderCount"),
		in("command nobody knows", "heartbeat-ret", "commands", command("\x81\xaccommand_type\xa4quit"),
			DecodeUnknownValue, `"quit"`).at("command_type"),
		in("command without a type", "heartbeat-ret", "commands", command("\x81\xa6reason\xc0"),
			DecodeMissingField, "").at("command_type"),
		in("arguments as a list", "heartbeat-ret", "commands", command("\x82\xaccommand_type\xa9full_sync\xa4args\x90"),
			DecodeWrongType, "found array, want map").at("args"),
		in("17 commands", "heartbeat-ret", "commands", listOf(17, []byte{0x80}),
			DecodeArrayTooLong, "Limits.CommandCount"),
		in("heartbeat url as a number", "register-ret", "extra_config", []byte("\x81\xadheartbeat_url\x07"),
			DecodeWrongType, "").at("heartbeat_url"),
		{
			"tag of no request to a worker", "worker-health", golden["register"].Append(nil),
			DecodeWrongTag, "type", "found RegisterMsg, want a request to a worker",
		},
	}
	return append(tests, jsonRefusals()...)
}

// jsonRefusals are those of JSON.
func jsonRefusals() []refusal {
	register := func(fields string) []byte { return []byte(`{"type": "RegisterMsg", ` + fields + `}`) }
	const rest = `"worker_id": 0, "ip": "10.0.0.1", "port": 9950, "peer_init_url": null`
	many := ""
	for i := range 65 {
		many += fmt.Sprintf(`"x%d": 0, `, i)
	}
	return []refusal{
		{"json: nothing behind the brace", "register", []byte(`{`), DecodeTruncated, "", "at byte 1: truncated"},
		{
			"json: no object", "register", []byte(`{]`),
			DecodeBadJSON, "", `found "]", want a name in quotes; send an object, or msgpack`,
		},
		{
			"json: a comma too many", "register", register(`"ip": "x",`),
			DecodeBadJSON, "", `found "}", want a name in quotes`,
		},
		{
			"json: cut short", "register", []byte(`{"type": "RegisterMsg", "ip": "10.`),
			DecodeTruncated, "", "at byte 34: truncated",
		},
		{"json: a field that is no text", "register", []byte(`{7: 8}`), DecodeBadJSON, "", `found "7: 8}"`},
		{
			"json: two objects", "register", append(register(`"instance_id": "i", `+rest), "{}"...),
			DecodeTrailing, "", "2 bytes, want none",
		},
		{
			"json: not utf-8", "register", register("\"instance_id\": \"\xff\", " + rest),
			DecodeInvalidUTF8, "", "at byte 40",
		},
		{
			"json: missing field", "register", register(rest),
			DecodeMissingField, "instance_id", "RegisterMsg.instance_id",
		},
		{
			"json: text for a number", "register", register(`"instance_id": "i", ` + strings.Replace(rest, "9950", `"9950"`, 1)),
			DecodeWrongType, "port", "at byte 86",
		},
		{
			"json: a fraction", "register", register(`"instance_id": "i", ` + strings.Replace(rest, "9950", `9950.0`, 1)),
			DecodeWrongType, "port", "found float, want int",
		},
		{
			"json: a number of 65 bits", "kv-admit", []byte(`{"type": "KVAdmitMsg", "key": 18446744073709551616}`),
			DecodeWrongType, "key", "found float, want int",
		},
		{"json: out of range", "register", register(`"port": 65536`), DecodeOutOfRange, "port", "at byte 32"},
		{
			"json: tag of another message", "register", []byte(`{"type": "ErrorMsg"}`),
			DecodeWrongTag, "type", "at byte 9",
		},
		{"json: no tag", "register", []byte(`{"ip": "x"}`), DecodeMissingTag, "type", ""},
		{"json: tag nobody knows", "register", []byte(`{"type": "Nobody"}`), DecodeUnknownTag, "type", `"Nobody"`},
		{
			"json: of a message between peers", "p2p-error", []byte(`{"type": "P2PErrorMsg", "error_code": 1}`),
			DecodeWrongType, "", "found int, want map",
		},
		{
			"json: long text", "controller-error", []byte(`{"type": "ErrorMsg", "error": "` + strings.Repeat("x", 1025) + `"}`),
			DecodeStringTooLong, "error", "at byte 30",
		},
		{"json: 65 fields", "register", register(many + `"ip": ""`), DecodeMapTooLong, "", "Limits.MapLen"},
		{
			"json: nine levels", "register", register(`"x": ` + strings.Repeat("[", 8) + strings.Repeat("]", 8)),
			DecodeTooDeep, "", "9 levels, want at most 8 (Limits.Depth)",
		},
		{
			"json: operation nobody knows", "kv-batch",
			[]byte(`{"type": "BatchedKVOperationMsg", "operations": [{"op_type": "admit", "key": 1, "seq_num": 0}, ` +
				`{"op_type": "move"}]}`),
			DecodeUnknownValue, "op_type", "at byte 107",
		},
	}
}

// A lease is a time that can be waited for, however it was told.
func TestLeaseOfAnAnswer(t *testing.T) {
	for seconds, want := range map[float64]int64{
		0: 0, 60: 60_000_000_000, 0.1: 100_000_000, 1e-10: 0, -1: 0, math.Inf(-1): 0, math.Inf(1): math.MaxInt64,
		math.NaN(): 0, 1e10: math.MaxInt64, 9.2e9: 9_200_000_000_000_000_000,
	} {
		m := AscendBatchedLookupAndGetRetMsg{LeaseSeconds: seconds}
		if got := m.LeaseNS(); got != want {
			t.Errorf("%v s is %d ns, want %d", seconds, got, want)
		}
	}
}

// "int where float is declared, or float32: accepted."
func TestNumbersForSeconds(t *testing.T) {
	for value, want := range map[string]float64{
		"3c": 60, "ff": -1, "d3ffffffffffffffff": -1, "cfffffffffffffffff": 1 << 64, "ca42700000": 60,
		"cb404e000000000000": 60,
	} {
		payload := withField(t, "p2p-get-ret-miss", "lease_ttl_s", unhex(t, value))
		var m AscendBatchedLookupAndGetRetMsg
		if err := m.Decode(payload, nil); err != nil || m.LeaseSeconds != want {
			t.Errorf("%s is %v, %v", value, m.LeaseSeconds, err)
		}
	}
}

// A key's hash as a number, where it is one of 64 bits.
func TestChunkHashes(t *testing.T) {
	for digits, want := range map[string]string{
		"1f": "31", "-2a": "-42", "0": "0", "ffffffffffffffd6": "18446744073709551574",
		"-8000000000000000": "-9223372036854775808", "7fffffffffffffff": "9223372036854775807",
	} {
		h, ok := ParseChunkHash(digits)
		if !ok || h.String() != want {
			t.Errorf("%s is %v, %v, want %s", digits, h, ok, want)
		}
	}
	for _, digits := range []string{"", "-", "+1", "-8000000000000001", "10000000000000000", "x",
		strings.Repeat("0f", 32)} {
		if h, ok := ParseChunkHash(digits); ok {
			t.Errorf("%s is %v", digits, h)
		}
	}
	if a, b := goldenHashes[1], (ChunkHash{Bits: goldenHashes[1].Bits}); a == b {
		t.Error("a negative hash is that with the same bits")
	}
}

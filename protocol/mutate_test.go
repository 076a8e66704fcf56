package protocol

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// These tests take every golden vector apart and put it together wrongly, so that each rule is
// tried on each field of each message, those of later messages included.

// An entry is one field of a map as it stands in the bytes.
type entry struct {
	name  string
	value []byte
}

// entries takes a payload apart.
func entries(t *testing.T, payload []byte) []entry {
	t.Helper()
	r := newReader(payload, nil)
	var es []entry
	for n := r.readMapHeader(); n > 0; n-- {
		name := string(r.readName())
		from := r.off
		r.skipValue(2)
		es = append(es, entry{name, payload[from:r.off]})
	}
	if r.expectEnd(); !r.ok() {
		t.Fatal(r.err)
	}
	return es
}

// join puts a payload together, with the header forms as wide as they get if wide is set.
func join(es []entry, wide bool) []byte {
	b := appendMapHeader(nil, len(es))
	if wide {
		b = []byte{0xdf, 0, 0, 0, byte(len(es))}
	}
	for _, e := range es {
		if wide {
			b = append(b, 0xdb, 0, 0, 0, byte(len(e.name)))
			b = append(append(b, e.name...), widen(e.value)...)
			continue
		}
		b = append(appendStr(b, e.name), e.value...)
	}
	return b
}

// widen gives a value, and all inside it, the widest form there is.
func widen(value []byte) []byte {
	r := reader{b: value, lim: &defaultLimits}
	b := widenNext(&r, nil)
	if r.expectEnd(); !r.ok() {
		panic(r.err)
	}
	return b
}

func widenNext(r *reader, b []byte) []byte {
	c, _ := r.peekByte()
	width4 := func(lead byte, n uint64) []byte {
		return append(b, lead, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	switch typeName(c) {
	case "int":
		v, negative := r.readInteger()
		lead := byte(0xcf)
		if negative || v < 1<<63 {
			lead = 0xd3 // msgspec reads signed forms of what is not negative, too.
		}
		b = append(b, lead)
		for shift := 56; shift >= 0; shift -= 8 {
			b = append(b, byte(v>>shift))
		}
	case "str":
		s := r.readText()
		b = append(width4(0xdb, uint64(len(s))), s...)
	case "bin":
		s := r.readBin(r.lim.BlobBytes, "BlobBytes")
		b = append(width4(0xc6, uint64(len(s))), s...)
	case "array":
		n, _ := r.readCount(0x90, 0xdc, "array")
		for b = width4(0xdd, n); n > 0; n-- {
			b = widenNext(r, b)
		}
	case "map":
		n, _ := r.readCount(0x80, 0xde, "map")
		for b = width4(0xdf, n); n > 0; n-- {
			b = widenNext(r, widenNext(r, b))
		}
	default:
		from := r.off
		r.skipValue(2)
		b = append(b, r.b[from:r.off]...)
	}
	return b
}

// eachVector runs f for every golden message.
func eachVector(t *testing.T, f func(t *testing.T, m Message, payload []byte)) {
	for name, m := range golden {
		t.Run(name, func(t *testing.T) { f(t, m, m.Append(nil)) })
	}
}

// decode decodes into a fresh message of m's type.
func decode(m Message, payload []byte) (Message, error) {
	got := NewMessage(tagOf(m))
	return got, got.Decode(payload, nil)
}

func tagOf(m Message) Tag {
	tag, err := PeekTag(m.Append(nil), nil)
	if err != nil {
		panic(err)
	}
	return tag
}

func wantSame(t *testing.T, m Message, payload []byte) {
	t.Helper()
	got, err := decode(m, payload)
	if err != nil {
		t.Fatalf("%x: %v", payload, err)
	}
	if tag, err := PeekTag(payload, nil); err != nil || tag != tagOf(m) {
		t.Errorf("PeekTag: %v, %v", tag, err)
	}
	if text(got) != text(m) {
		t.Errorf("%x decodes as\n%s\nwant\n%s", payload, text(got), text(m))
	}
}

func wantRefused(t *testing.T, m Message, payload []byte, code DecodeCode, field string) {
	t.Helper()
	_, err := decode(m, payload)
	var refused *DecodeError
	if !errors.As(err, &refused) {
		t.Fatalf("%x: got %v, want %v", payload, err, code)
	}
	if refused.Code != code || refused.Field != field {
		t.Errorf("%x: got %v, want %v in field %q", payload, err, code, field)
	}
	if refused.Offset < 0 || refused.Offset > len(payload) {
		t.Errorf("%x: offset of %v is outside", payload, err)
	}
}

// "Tag key not first, or last: accepted." The order of fields means nothing but for the two kinds
// of AllocResponse, whose fields other than the tag keep their order here.
func TestTagAnywhere(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		for at := range es {
			moved := slices.Insert(slices.Clone(es[1:]), at, es[0])
			wantSame(t, m, join(moved, false))
		}
	})
}

func TestFieldsInAnyOrder(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		if tagOf(m) == TagAllocResponse {
			t.Skip("the order tells the form")
		}
		es := entries(t, payload)
		slices.Reverse(es)
		for range es {
			es = append(es[1:], es[0])
			wantSame(t, m, join(es, false))
		}
	})
}

// "Non-minimal int/str/map/array widths: accepted."
func TestWideFormsAreAccepted(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		wantSame(t, m, join(entries(t, payload), true))
	})
}

// "Unknown extra fields: ignored", whatever they hold, in any place.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	values := []string{
		"c0", "c2", "c3", "07", "f0", "ccff", "cdffff", "ceffffffff", "cfffffffffffffffff", "d0ff", "d1ffff",
		"d2ffffffff", "d3ffffffffffffffff", "ca3f800000", "cb3ff0000000000000", "a0", "a161", "d90161", "da000161",
		"db0000000161", "c400", "c50000", "c600000000", "90", "9107", "dc000107", "dd0000000107", "80", "810708",
		"de00010708", "df000000010708", "d40100", "d5010000", "d60100000000", "d7010000000000000000",
		"d80100000000000000000000000000000000", "c70001", "c8000001", "c90000000001",
		"a1ff",             // A string that is not UTF-8 harms nobody who does not read it.
		"81810102c0",       // The key is a map.
		"9191919191919107", // As deep as it may be.
	}
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		for i, v := range values {
			extra := entry{"later", unhex(t, v)}
			wantSame(t, m, join(slices.Insert(slices.Clone(es), i%(len(es)+1), extra), false))
		}
		// NB: two unknown fields of one name are both skipped; nobody can differ on which one counts.
		twice := append(slices.Clone(es), entry{"later", []byte{0}}, entry{"later", []byte{0}})
		wantSame(t, m, join(twice, false))
	})
}

func TestDuplicateFieldsAreRefused(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		for _, e := range es {
			wantRefused(t, m, join(append(slices.Clone(es), e), false), DecodeDuplicateField, e.name)
		}
	})
}

func TestMissingFields(t *testing.T) {
	layout := []string{"kvf_fmt", "kvf_shape", "kvf_dtype"} // None has a default where another is given.
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		s := schemas[tagOf(m)]
		for i, e := range es {
			without := join(slices.Delete(slices.Clone(es), i, i+1), false)
			at := slices.Index(s.names, e.name)
			switch {
			case at == 0:
				wantRefused(t, m, without, DecodeMissingTag, e.name)
			case s.required&(1<<at) != 0, slices.Contains(layout, e.name):
				wantRefused(t, m, without, DecodeMissingField, e.name)
			default:
				if _, err := decode(m, without); err != nil && !isMismatch(err) {
					t.Errorf("without %s: %v", e.name, err)
				}
			}
		}
	})
}

// What has no default, message by message; the tests above take the schemas' word for it.
func TestRequiredFields(t *testing.T) {
	for tag, want := range map[Tag]string{
		TagAllocRequest:        "keys fmt shape dtype last_chunk_toks",
		TagAllocResponse:       "remote_indexes",
		TagAscendAllocResponse: "already_sent_indexes remote_indexes remote_buffer_uuids",
		TagProxyNotif:          "req_id",
		TagPullReadyNotif: "pull_id keys sender_buffer_uuids sender_mem_indexes sender_id sender_done_url fmt shape " +
			"dtype last_chunk_toks",
		TagPullReadyDoneAck:    "already_sent_indexes",
		TagPullDoneSignal:      "pull_id",
		TagHixlInitRequest:     "local_id engine_id",
		TagHixlInitResponse:    "engine_id",
		TagHixlReadyRequest:    "local_id",
		TagHixlReadyResponse:   "ok",
		TagHixlMemInfoRequest:  "local_id buffers",
		TagHixlMemInfoResponse: "buffers",
		TagRenewRequest:        "kvf_v kvf_inc kvf_to kvf_op",
		TagRenewResponse:       "kvf_v kvf_inc",
		TagEndRequest:          "kvf_v kvf_op kvf_req",
		TagEndResponse:         "kvf_v",
		TagCacheQueryRequest:   "keys",
		TagCacheQueryResponse:  "cached_keys cached_indexes",

		TagAscendBatchedLookupAndGetMsg:     "lookup_id receiver_id keys mem_indexes",
		TagAscendBatchedLookupAndGetRetMsg:  "num_hit_chunks",
		TagAscendBatchedLookupAndGetDoneMsg: "lookup_id",
		TagAscendQueryDonePortRetMsg:        "done_url",
		TagAscendBatchedLookupAndPutMsg:     "sender_id keys offsets mem_indexes",
		TagBatchedLookupAndGetMsg:           "lookup_id receiver_id keys mem_indexes",
		TagBatchedLookupAndGetRetMsg:        "num_hit_chunks",
		TagBatchedLookupAndPutMsg:           "sender_id keys offsets mem_indexes",
		TagBatchedLookupAndPutRetMsg:        "num_read_chunks",
		TagP2PErrorMsg:                      "error_code",
		TagP2PInitSideRetMsg:                "peer_lookup_url",
		TagRegisterMsg:                      "instance_id worker_id ip port peer_init_url",
		TagDeRegisterMsg:                    "instance_id worker_id ip port",
		TagHeartbeatMsg:                     "instance_id worker_id ip port peer_init_url",
		TagBatchedP2PLookupMsg:              "hashes instance_id worker_id",
		TagBatchedP2PLookupRetMsg:           "layout_info",
		TagKVAdmitMsg:                       "instance_id worker_id key location",
		TagKVEvictMsg:                       "instance_id worker_id key location",
		TagBatchedKVOperationMsg:            "instance_id worker_id location operations",
		TagFullSyncStartMsg:                 "instance_id worker_id location sync_id total_keys batch_count",
		TagFullSyncStartRetMsg:              "sync_id accepted",
		TagFullSyncBatchMsg:                 "instance_id worker_id location sync_id batch_id keys",
		TagFullSyncEndMsg:                   "instance_id worker_id location sync_id actual_total_keys",
		TagFullSyncStatusMsg:                "instance_id worker_id sync_id",
		TagFullSyncStatusRetMsg:             "sync_id is_complete global_progress can_exit_freeze",
		TagErrorMsg:                         "error",
		TagClearWorkerMsg:                   "worker_event_id",
		TagCheckFinishWorkerMsg:             "worker_event_id",

		TagAttachRequest:  "v",
		TagAttachResponse: "v fmt shape dtype",
		TagEngineCall:     "id op",
		TagEngineAnswer:   "id",
		TagEngineShow:     "id pages lengths",
		TagEngineShown:    "id",
		TagEngineReturned: "id",
	} {
		var got []string
		for i, name := range schemas[tag].names {
			if schemas[tag].required&(1<<i) != 0 {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: got %v, want %s", tag, got, want)
		}
	}
}

// isMismatch tells a list that lost the one it runs beside.
func isMismatch(err error) bool {
	var refused *DecodeError
	return errors.As(err, &refused) && refused.Code == DecodeLengthMismatch
}

// "nil where a list/str/int is declared: error", "bin where str is declared: error", "float where
// int is declared: error; bool where int is declared: error".
func TestWrongTypes(t *testing.T) {
	wider := map[string][]string{ // fields that take more than one type
		"lease_ttl_s": {"int", "float"}, "global_progress": {"int", "float"},
		"peer_init_url": {"nil", "str"}, "error_msg": {"nil", "str"},
	}
	values := []string{"c0", "c3", "07", "cb3ff0000000000000", "ca3f800000", "a161", "c400", "90", "80", "d40100"}
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		for i, e := range es {
			for _, v := range values {
				value := unhex(t, v)
				if typeName(value[0]) == typeName(e.value[0]) || slices.Contains(wider[e.name], typeName(value[0])) {
					continue
				}
				wrong := slices.Clone(es)
				wrong[i].value = value
				wantRefused(t, m, join(wrong, false), DecodeWrongType, e.name)
			}
		}
	})
}

// Names have the short form, which decoders look for.
func TestFieldNamesAreShort(t *testing.T) {
	for _, s := range schemas {
		if s == nil {
			continue
		}
		for _, name := range s.names {
			if len(name) > shortString {
				t.Errorf("%s declares %q, of more than %d bytes", s.name, name, shortString)
			}
		}
	}
}

// "Map keys that are not text" are nobody's fields.
func TestFieldNamesAreText(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		b := appendMapHeader(nil, len(es)+1)
		b = append(b, join(es, false)[len(appendMapHeader(nil, len(es))):]...)
		wantRefused(t, m, append(slices.Clone(b), 0xc4, 1, 'a', 0), DecodeWrongType, "")
		wantRefused(t, m, append(slices.Clone(b), 7, 0), DecodeWrongType, "")
	})
}

func TestEveryPrefixIsTruncated(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		for n := range payload {
			_, err := decode(m, payload[:n])
			var refused *DecodeError
			if !errors.As(err, &refused) {
				t.Fatalf("the first %d bytes: %v", n, err)
			}
			if want := DecodeTruncated; n == 0 && refused.Code != DecodeEmpty || n > 0 && refused.Code != want {
				t.Errorf("the first %d bytes: %v", n, err)
			}
			if _, err := PeekTag(payload[:n], nil); err == nil {
				t.Errorf("PeekTag accepts the first %d bytes", n)
			}
		}
	})
}

func TestTrailingBytes(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		for _, tail := range []string{"\x00", "\xc0", "\xc1", string(payload)} {
			longer := append(slices.Clone(payload), tail...)
			wantRefused(t, m, longer, DecodeTrailing, "")
			if _, err := PeekTag(longer, nil); err == nil {
				t.Errorf("PeekTag accepts %x", longer)
			}
		}
	})
}

func TestTagOfAnotherMessage(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		es := entries(t, payload)
		for tag := TagNone + 1; tag < tags; tag++ {
			if reflect.TypeOf(NewMessage(tag)) == reflect.TypeOf(m) {
				continue // One decoder reads both.
			}
			es[0].value = appendStr(nil, tag.String())
			wantRefused(t, m, join(es, false), DecodeWrongTag, tagField)
		}
		es[0].value = appendStr(nil, "CancelNotif")
		wantRefused(t, m, join(es, false), DecodeUnknownTag, tagField)
	})
}

package fuzz

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/foreign"
	"github.com/kvferry/kvferry/protocol/vectors"
)

// Seeds returns the inputs with which the target begins: golden vectors of package protocol, the same messages in the
// bytes of another encoder, inputs that have harmed decoders, and inputs that a fuzzer once found. The caller owns the
// inputs.
func (t Target) Seeds() [][]byte {
	var seeds [][]byte
	if t.tags == nil {
		seeds = t.seeds()
	} else {
		seeds = append(attackSeeds(), variantsOf(func(v variant) bool { return slices.Contains(t.tags, v.tag) })...)
	}
	for _, input := range findings[t.name] {
		seeds = append(seeds, []byte(input))
	}
	return seeds
}

// findings are inputs that the fuzzer found, by target. Each comment describes the defect that the input showed.
var findings = map[string][]string{
	// Without kvf_dtype the layout is incomplete. The decoder accepted the rest of the layout, which Append could not
	// write.
	"HixlInitRequest": {"\x8b\xa4type\xafHixlInitRequest\xa8local_id\xad10.0.0.2:9960\xa9engine_id\xae10.0.0.2:50001" +
		"\xa9kvf_proto\x92\x01\x02\xa7kvf_inc\xd9$6f1c2d3e-4a5b-6c7d-8e9f-001122334455\xa8kvf_caps\x03" +
		"\xaekvf_page_bytes\xce\x01 \x00\x00\xa7kvf_fmt\x01\xa9kvf_shape\x94\x02$\xcd\x01\x00\xcd\x02\x00" +
		"\xa9kvf_dt pe\xa8bfloat16\xaakvf_planes\x92\xa3shm\xa3tcp"},
	// The same defect in the reply.
	"HixlInitResponse": {"\x8b\xa4type\xb0HixlInitResponse\xa9engine_id\xae10.0.0.1:50000\xa9kvf_proto\x92\x01\x01" +
		"\xa7kvf_inc\xd9$aabbccdd-eeff-4011-8233-445566778899\xa8kvf_caps\x01\xaekvf_page_bytes\xce\x01 \x00\x00" +
		"\xa7kvf_fmt\x01\xa9kvf_shape\x94\x02$\xcd\x01\x00\xcd\x02\x00\xa9kv\x7f_dtype\xa8bfloat16" +
		"\xaakvf_planes\x92\xa3shm\xa3tcp\xa9kvf_blobs\x92\xc4\x02\x00\x01\xc4\x00"},
}

// A variant is the message of a golden vector in the bytes of an encoder.
type variant struct {
	vector string
	tag    protocol.Tag
	form   form
	bytes  []byte
}

// A form says which encoder wrote a variant.
type form uint8

const (
	golden        form = iota // the bytes of the golden vector
	otherEncoder              // the same values in other bytes
	repeatedField             // a field is given twice, which every decoder refuses
)

// variants returns the three variants of every golden vector. The choices of an encoder depend on the vector alone, so
// a new vector does not change the seeds of the existing vectors.
var variants = sync.OnceValue(func() (all []variant) {
	for _, v := range vectors.All() {
		tag, err := protocol.PeekTag(v.Payload, nil)
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(v.Name)) // It returns no error.
		other, ok := foreign.Append(nil, v.Payload, foreign.All, newDraw(sum.Sum64()))
		twice, _, again := foreign.Repeat(nil, v.Payload, foreign.All, newDraw(sum.Sum64()))
		if err != nil || !ok || !again {
			panic("BUG: vector " + v.Name + " is not a message")
		}
		all = append(all, variant{v.Name, tag, golden, v.Payload}, variant{v.Name, tag, otherEncoder, other},
			variant{v.Name, tag, repeatedField, twice})
	}
	return all
})

// variantsOf returns the bytes of the variants for which holds returns true.
func variantsOf(holds func(v variant) bool) (seeds [][]byte) {
	for _, v := range variants() {
		if holds(v) {
			seeds = append(seeds, slices.Clone(v.bytes))
		}
	}
	return seeds
}

// peekTagSeeds returns all variants, because the scan reads every message.
func peekTagSeeds() [][]byte {
	return append(attackSeeds(), variantsOf(func(variant) bool { return true })...)
}

// memorySeeds leaves out the variants of the other encoder, because each input is decoded as every message.
func memorySeeds() [][]byte {
	return append(attackSeeds(), variantsOf(func(v variant) bool { return v.form == golden })...)
}

// textSeeds returns a function that returns the given texts as seeds.
func textSeeds(texts ...string) func() [][]byte {
	return func() [][]byte {
		seeds := make([][]byte, len(texts))
		for i, s := range texts {
			seeds[i] = []byte(s)
		}
		return seeds
	}
}

// attackSeeds returns payloads that have harmed decoders, alone or in an unknown field of a ProxyNotif.
func attackSeeds() [][]byte {
	notif := (&protocol.ProxyNotif{RequestID: []byte("17")}).Append(nil)
	extended := func(value string) []byte {
		b := slices.Clone(notif)
		b[0]++
		return append(append(b, "\xa1x"...), value...)
	}
	return [][]byte{
		nil,
		[]byte("\xdf\xff\xff\xff\xff"),           // a map of 4 G fields
		extended("\xdd\xff\xff\xff\xff"),         // a list of 4 G values
		extended("\xc6\xff\xff\xff\xff"),         // 4 GB of bytes
		extended(strings.Repeat("\x91", 64)),     // lists, deeply nested
		extended(strings.Repeat("\x81\xa0", 64)), // maps, deeply nested
		extended("\xc1"),                         // the byte that msgpack never uses
		extended("\xc7\x03\x01abc"),              // an extension type
		append(slices.Clone(notif), 0),           // a byte after the message
		[]byte("\x83\xa4type\xaaProxyNotif\xa6req_id\xa11\xa6req_id\xa12"), // a field given twice
		[]byte("\x82\xa6req_id\xa11\xa4type\xaaProxyNotif"),                // the tag last
		[]byte("\x82\xa4type\xaaProxyNotif\xa6req_id\xc0"),                 // nil for a text
		[]byte("\x82\xa4type\xaaProxyNotif\xa6req_id\xa1\xff"),             // a text that is not UTF-8
	}
}

// controllerJSONSeeds returns the vectors that may be JSON, as JSON of another writer, and texts that have harmed
// readers of JSON.
func controllerJSONSeeds() [][]byte {
	seeds := textSeeds(
		`{`, `{}`, `{"type":"ErrorMsg","error":"x"}}`, `{"type":"ErrorMsg","error":"\ud83d"}`,
		`{"type":"ErrorMsg","error":"\u00"}`,
		`{"type":"Nobody","type":"ErrorMsg","error":1,"error":"x"}`, `{"type":"ErrorMsg","error":"`+"\xff"+`"}`,
		`{"type":"KVAdmitMsg","instance_id":"i","worker_id":0,"location":"","key":18446744073709551616}`,
		`{"type":"KVAdmitMsg","instance_id":"i","worker_id":-0,"location":"","key":-9223372036854775808}`,
		`{"type":"FullSyncStatusRetMsg","sync_id":"","is_complete":true,"global_progress":1e999,"can_exit_freeze":false}`,
		`{"x":`+strings.Repeat("[", 64), `{"x":`+strings.Repeat(`{"":`, 64),
	)()
	for _, v := range variants() {
		if v.form == golden && v.tag.Family() == protocol.FamilyController {
			seeds = append(seeds, inJSON(v))
		}
	}
	return seeds
}

// inJSON returns a message as JSON of another writer.
func inJSON(v variant) []byte {
	var fields map[string]any
	err := msgpack.Unmarshal(v.bytes, &fields)
	b, marshalErr := json.Marshal(fields)
	if err != nil || marshalErr != nil {
		panic("BUG: vector " + v.vector + " is not JSON")
	}
	return b
}

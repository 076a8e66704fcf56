package protocol

import (
	"fmt"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// batch64 is a request as a busy sender makes it: 64 keys of 120 bytes.
func batch64() *AllocRequest {
	m := &AllocRequest{Format: FormatKV2LTD, Shape: goldenShape, Dtype: DtypeBFloat16, LastChunkTokens: 256}
	for i := range 64 {
		key := fmt.Sprintf("%s@8@%d@%064x@bfloat16", "models/Organisation/A-Large-Model-70B-it", i%8,
			0x9e3779b97f4a7c15*uint64(i+1))
		m.Keys = append(m.Keys, []byte(key))
	}
	return m
}

// viaLibrary is what msgpack/v5 makes of the same message, as a yardstick.
type viaLibrary struct {
	Type            string   `msgpack:"type"`
	Keys            []string `msgpack:"keys"`
	Format          uint8    `msgpack:"fmt"`
	Shape           []uint32 `msgpack:"shape"`
	Dtype           string   `msgpack:"dtype"`
	LastChunkTokens uint32   `msgpack:"last_chunk_toks"`
}

func libraryBatch64() *viaLibrary {
	m := batch64()
	v := &viaLibrary{"AllocRequest", nil, uint8(m.Format), m.Shape.Dims[:], m.Dtype.String(), m.LastChunkTokens}
	for _, k := range m.Keys {
		v.Keys = append(v.Keys, string(k))
	}
	return v
}

func BenchmarkAllocRequestEncode64Keys(b *testing.B) {
	m := batch64()
	payload := m.Append(nil)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		payload = m.Append(payload[:0])
	}
}

func BenchmarkAllocRequestDecode64Keys(b *testing.B) {
	payload := batch64().Append(nil)
	var m AllocRequest
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The same with what a server does before and after: find the message's kind, check its keys.
func BenchmarkAllocRequestServe64Keys(b *testing.B) {
	payload := batch64().Append(nil)
	var m AllocRequest
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := PeekTag(payload, nil); err != nil {
			b.Fatal(err)
		}
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
		for _, k := range m.Keys {
			if err := CheckKey(k, 512); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkAllocResponseDecode64Pages(b *testing.B) {
	m := AllocResponse{}
	for i := range int64(64) {
		m.RemoteIndexes = append(m.RemoteIndexes, 1000+i)
		m.RemoteUUIDs = append(m.RemoteUUIDs, uuid1)
	}
	payload := m.Append(nil)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// offer64 is an offer of the same batch, with all that we add to it.
func offer64() *PullReadyNotif {
	m := offer(goldenOfferExt)
	m.Keys, m.SenderUUIDs, m.SenderIndexes, m.Ext.Generations = batch64().Keys, nil, nil, nil
	for i := range m.Keys {
		m.SenderUUIDs = append(m.SenderUUIDs, uuid1)
		m.SenderIndexes = append(m.SenderIndexes, int64(1000+i))
		m.Ext.Generations = append(m.Ext.Generations, uint64(70000+i))
	}
	return m
}

func BenchmarkPullReadyEncode64Keys(b *testing.B) {
	m := offer64()
	payload := m.Append(nil)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		payload = m.Append(payload[:0])
	}
}

func BenchmarkPullReadyDecode64Keys(b *testing.B) {
	payload := offer64().Append(nil)
	var m PullReadyNotif
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPullDoneDecode(b *testing.B) {
	payload := golden["pull-done-signal-missing"].Append(nil)
	var m PullDoneSignal
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenewDecode256Grants(b *testing.B) {
	m := RenewRequest{Version: 1, Incarnation: uuid2, To: uuid1, Operation: 11,
		Stamps: Stamps{3_000_000_000, 7_000_000_000}}
	for i := range uint64(256) {
		m.Grants = append(m.Grants, 1<<40+i)
	}
	payload := m.Append(nil)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(payload, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocRequestEncode64KeysMsgpackV5(b *testing.B) {
	v := libraryBatch64()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := msgpack.Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocRequestDecode64KeysMsgpackV5(b *testing.B) {
	payload := batch64().Append(nil)
	var v viaLibrary
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := msgpack.Unmarshal(payload, &v); err != nil {
			b.Fatal(err)
		}
	}
}

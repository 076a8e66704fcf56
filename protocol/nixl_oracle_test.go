package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// msgspec is the oracle of the messages of vLLM's NIXL push connector: `make nixl-oracle` runs it.

func startNixl(t *testing.T) *oracle { return startOracle(t, "KVFERRY_NIXL", "nixl") }

// What msgspec writes, we read, and write byte for byte.
func TestNixlOracleIsRead(t *testing.T) {
	o, all := startNixl(t), nixlMessages()
	kinds := slices.Sorted(maps.Keys(all))
	for n := range instances(t) {
		kind := kinds[n%len(kinds)]
		answer := o.ask(t, fmt.Sprintf("draw %s %d", kind, n))
		payload, err := hex.DecodeString(answer)
		if err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		m := all[kind]
		if err := m.Decode(payload, nil); err != nil {
			t.Fatalf("%s: %x: %v", kind, payload, err)
		}
		if again := m.Append(nil); !bytes.Equal(again, payload) {
			t.Fatalf("%s\nthey write %x\nwe         %x", kind, payload, again)
		}
	}
}

// What we write, msgspec reads, and writes byte for byte. What we take when it is damaged, it takes, too, as the same.
func TestNixlOracleReads(t *testing.T) {
	o, all := startNixl(t), nixlMessages()
	kinds := slices.Sorted(maps.Keys(all))
	taken := 0
	for n := range instances(t) {
		kind := kinds[n%len(kinds)]
		payload := rapid.Custom(func(t *rapid.T) []byte { return drawNixl(t, all[kind]).Append(nil) }).Example(n)
		if got := o.ask(t, "take "+kind+" "+hex.EncodeToString(payload)); got != hex.EncodeToString(payload) {
			t.Fatalf("%s\nwe write %x\nthey     %s", kind, payload, got)
		}
		payload[n*7919%len(payload)] = byte(n * 104729 >> 3)
		m := reflect.New(reflect.TypeOf(all[kind]).Elem()).Interface().(Message)
		if m.Decode(payload, nil) != nil {
			continue
		}
		got := o.ask(t, "take "+kind+" "+hex.EncodeToString(payload))
		again, err := hex.DecodeString(got)
		if err != nil {
			t.Fatalf("%s\nwe take  %x\nthey say %s", kind, payload, got)
		}
		same := reflect.New(reflect.TypeOf(all[kind]).Elem()).Interface().(Message)
		err = same.Decode(again, nil)
		for _, each := range []Message{m, same} { // Which fields were left out is no part of what is said.
			if worker, ok := each.(*NixlMetadata); ok {
				worker.Missing, worker.Unknown = nil, nil
			}
		}
		if err != nil || text(same) != text(m) {
			t.Fatalf("%s\n%x\nis   %s\nthey %s, %v", kind, payload, text(m), text(same), err)
		}
		taken++
	}
	t.Logf("%d damaged ones were taken", taken)
}

// The hash of any factors is that of Python's json.
func TestNixlOracleHashes(t *testing.T) {
	o := startNixl(t)
	for n := range instances(t) / 10 {
		want, text, _ := strings.Cut(o.ask(t, fmt.Sprintf("hash %d", n)), " ")
		var x struct {
			VLLMVersion      string `json:"vllm_version"`
			ConnectorVersion int    `json:"nixl_connector_version"`
			Model, Dtype     string
			KVHeads          int    `json:"num_kv_heads"`
			HeadSize         int    `json:"head_size"`
			HiddenLayers     int    `json:"num_hidden_layers"`
			Backend          string `json:"attn_backend_name"`
			CacheDtype       string `json:"cache_dtype"`
			Hybrid           bool   `json:"is_hma_enabled"`
			TransferMode     string `json:"transfer_mode"`
			Speculative      *struct {
				Method, Model, Revision string
				CodeRevision            string `json:"code_revision"`
				ParallelDrafting        bool   `json:"parallel_drafting"`
				CacheDtype              string `json:"kv_cache_dtype"`
				AuxiliaryLayers         []int  `json:"auxiliary_layer_ids"`
			} `json:"speculative_config"`
		}
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			t.Fatal(err)
		}
		f := NixlFactors{
			x.VLLMVersion, x.ConnectorVersion, x.Model, x.Dtype, x.KVHeads, x.HeadSize, x.HiddenLayers, x.Backend,
			x.CacheDtype, x.Hybrid, nil, x.TransferMode,
		}
		if s := x.Speculative; s != nil {
			f.Speculative = &NixlSpeculative{s.Method, s.Model, s.Revision, s.CodeRevision, s.ParallelDrafting, s.CacheDtype,
				s.AuxiliaryLayers}
		}
		if got := f.Hash(); got != want {
			t.Fatalf("%s\nwe write %s", text, f.appendJSON(nil))
		}
	}
}

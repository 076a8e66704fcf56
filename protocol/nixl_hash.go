package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// NixlFactors are the settings that both ends of vLLM's NIXL connector must have in common: the compatibility hash is
// computed from these settings. Model and dtypes are the texts with which the engine is configured.
type NixlFactors struct {
	VLLMVersion      string // with its local suffix
	ConnectorVersion int
	Model            string
	Dtype            string // for example torch.bfloat16
	KVHeads          int    // of all ranks
	HeadSize         int
	HiddenLayers     int    // of all stages
	Backend          string // in push mode with a packed layout: all backends, sorted, separated by commas
	CacheDtype       string
	Hybrid           bool // is_hma_enabled
	Speculative      *NixlSpeculative
	TransferMode     string // push or pull
}

// NixlSpeculative describes how an engine drafts tokens, if it does. An empty revision means that there is none.
type NixlSpeculative struct {
	Method, Model, Revision, CodeRevision string
	ParallelDrafting                      bool
	CacheDtype                            string
	AuxiliaryLayers                       []int // nil: no layers are named
}

// Hash returns the SHA-256, in hex, of the factors as Python's json module writes them with sorted keys.
func (f *NixlFactors) Hash() string {
	sum := sha256.Sum256(f.appendJSON(nil))
	return hex.EncodeToString(sum[:])
}

func (f *NixlFactors) appendJSON(b []byte) []byte {
	b = appendJSONText(append(b, `{"attn_backend_name": `...), f.Backend)
	b = appendJSONText(append(b, `, "cache_dtype": `...), f.CacheDtype)
	b = appendJSONText(append(b, `, "dtype": `...), f.Dtype)
	b = strconv.AppendInt(append(b, `, "head_size": `...), int64(f.HeadSize), 10)
	b = strconv.AppendBool(append(b, `, "is_hma_enabled": `...), f.Hybrid)
	b = appendJSONText(append(b, `, "model": `...), f.Model)
	b = strconv.AppendInt(append(b, `, "nixl_connector_version": `...), int64(f.ConnectorVersion), 10)
	b = strconv.AppendInt(append(b, `, "num_hidden_layers": `...), int64(f.HiddenLayers), 10)
	b = strconv.AppendInt(append(b, `, "num_kv_heads": `...), int64(f.KVHeads), 10)
	b = f.Speculative.appendJSON(append(b, `, "speculative_config": `...))
	b = appendJSONText(append(b, `, "transfer_mode": `...), f.TransferMode)
	return append(appendJSONText(append(b, `, "vllm_version": `...), f.VLLMVersion), '}')
}

func (s *NixlSpeculative) appendJSON(b []byte) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	if b = append(b, `{"auxiliary_layer_ids": `...); s.AuxiliaryLayers == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, '[')
		for i, layer := range s.AuxiliaryLayers {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendInt(b, int64(layer), 10)
		}
		b = append(b, ']')
	}
	b = appendJSONTextOrNull(append(b, `, "code_revision": `...), s.CodeRevision)
	b = appendJSONText(append(b, `, "kv_cache_dtype": `...), s.CacheDtype)
	b = appendJSONText(append(b, `, "method": `...), s.Method)
	b = appendJSONText(append(b, `, "model": `...), s.Model)
	b = strconv.AppendBool(append(b, `, "parallel_drafting": `...), s.ParallelDrafting)
	return append(appendJSONTextOrNull(append(b, `, "revision": `...), s.Revision), '}')
}

func appendJSONTextOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendJSONText(b, s)
}

// appendJSONText appends a text as Python's json module writes it: characters that are not ASCII are escaped in UTF-16,
// and bytes that are not UTF-8 become U+FFFD.
func appendJSONText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c >= ' ' && c <= '~':
			b = append(b, byte(c))
		case c > 0xffff: // A pair of surrogates.
			b = appendEscape(appendEscape(b, 0xd800+(c-0x10000)>>10), 0xdc00+(c-0x10000)&0x3ff)
		default:
			b = appendEscape(b, c)
		}
	}
	return append(b, '"')
}

func appendEscape(b []byte, c rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[c>>12], digits[c>>8&15], digits[c>>4&15], digits[c&15])
}

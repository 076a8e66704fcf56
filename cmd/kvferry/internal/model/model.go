// Package model reads the dimensions of a model's KV cache from the model's config.json, as Hugging Face's transformers
// writes the file. The command "kvferry layout" uses it. For example, Parse of a file with num_hidden_layers 32,
// num_attention_heads 32, num_key_value_heads 8 and hidden_size 4096 returns 32 layers, 8 KV heads and 128 elements a
// head.
package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Model holds the values of a configuration on which the KV cache depends.
type Model struct {
	Name    string // the model's architecture
	Layers  uint32
	KVHeads uint32 // of the whole model; 0 with MLA
	Head    uint32 // elements per head; with MLA, elements of the latent head
	MLA     bool
	Dtype   string // kvferry's name; empty if the file does not name a known dtype
	Length  uint32 // the longest context in tokens; 0 if the file does not give it
}

// An Error describes a field of a configuration that cannot be read, or that kvferry does not support.
type Error struct {
	Field, Value string
	Remedy       string
}

func (e *Error) Error() string {
	text := e.Field
	if e.Value != "" {
		text += " is " + e.Value
	}
	return text + ": " + e.Remedy
}

// The names that families of models use for the same value, with the usual name first.
var (
	layersNames = []string{"num_hidden_layers", "num_layers", "n_layer", "n_layers"}
	headsNames  = []string{"num_attention_heads", "n_head", "n_heads", "num_heads"}
	hiddenNames = []string{"hidden_size", "n_embd", "d_model", "model_dim"}
	kvNames     = []string{"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "kv_n_heads"}
	headNames   = []string{"head_dim", "kv_channels", "attention_head_size"}
	lengthNames = []string{"max_position_embeddings", "seq_length", "n_positions", "max_seq_len", "n_ctx"}
	dtypeNames  = []string{"dtype", "torch_dtype"}
)

// innerNames are the fields in which multimodal models keep the configuration of the text model.
var innerNames = []string{"text_config", "llm_config", "language_config", "thinker_config"}

// dtypes maps torch's names of dtypes to kvferry's names.
var dtypes = map[string]string{"bfloat16": "bfloat16", "float16": "half", "half": "half"}

// Parse reads a config.json. It fails with an *Error if a field is missing or wrong, or if kvferry cannot move the KV
// cache of such a model, and with another error if the text is not JSON.
func Parse(text []byte) (*Model, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	f := fields{all}
	m := &Model{Name: f.modelName()}
	for _, inner := range innerNames {
		for raw, nested := f[len(f)-1][inner]; nested; raw, nested = f[len(f)-1][inner] {
			var of map[string]json.RawMessage
			if json.Unmarshal(raw, &of) != nil || of == nil {
				break
			}
			f = append(f, of)
		}
	}
	// MPT keeps the number of KV heads in attn_config.
	if raw, is := f.findField("attn_config"); is {
		var of map[string]json.RawMessage
		if json.Unmarshal(raw, &of) == nil && of["kv_n_heads"] != nil {
			f = append(f, map[string]json.RawMessage{"kv_n_heads": of["kv_n_heads"]})
		}
	}
	if err := f.checkSupported(); err != nil {
		return nil, err
	}
	return m, f.readModel(m)
}

// fields are the fields of a configuration, followed by the fields of each configuration that is nested in it. The
// innermost configuration takes precedence.
type fields []map[string]json.RawMessage

func (f fields) findField(name string) (json.RawMessage, bool) {
	for _, of := range slices.Backward(f) {
		if raw, is := of[name]; is && string(raw) != "null" {
			return raw, true
		}
	}
	return nil, false
}

func (f fields) modelName() string {
	var names []string
	if raw, is := f.findField("architectures"); is && json.Unmarshal(raw, &names) == nil && len(names) > 0 {
		return names[0]
	}
	return "model"
}

// readNumber returns the value of the first of several names that the configuration has. A list with a value for each
// layer must have the same value for all layers.
func (f fields) readNumber(names []string) (n uint32, is bool, err error) {
	for _, name := range names {
		raw, is := f.findField(name)
		if !is {
			continue
		}
		var each []uint32
		if json.Unmarshal(raw, &each) == nil && len(each) > 0 {
			if len(slices.Compact(slices.Clone(each))) > 1 {
				return 0, true, &Error{name, "different from layer to layer",
					"kvferry moves only models whose layers all have the same size"}
			}
			return each[0], true, nil
		}
		if json.Unmarshal(raw, &n) != nil {
			return 0, true, &Error{name, shorten(raw), "want a whole number"}
		}
		return n, true, nil
	}
	return 0, false, nil
}

// stateFields lists fields that mark a model in which some layers keep a state instead of keys and values.
var stateFields = []string{"layers_block_type", "hybrid_override_pattern", "linear_num_value_heads", "mamba_d_state",
	"ssm_state_size", "state_size", "mamba_num_heads", "attn_layer_period", "linear_attn_config"}

// checkSupported returns an error if the model has layers whose state kvferry cannot move.
func (f fields) checkSupported() error {
	const remedy = "kvferry moves only models whose layers all have keys and values"
	for _, name := range stateFields {
		if raw, is := f.findField(name); is {
			return &Error{name, shorten(raw), "some layers have a state instead of keys and values; " + remedy}
		}
	}
	var types []string
	if raw, is := f.findField("layer_types"); is && json.Unmarshal(raw, &types) == nil {
		for _, t := range types {
			if !strings.HasSuffix(t, "full_attention") && !strings.HasSuffix(t, "sliding_attention") &&
				!strings.HasSuffix(t, "chunked_attention") {
				return &Error{"layer_types", t, remedy}
			}
		}
	}
	if n, is, err := f.readNumber([]string{"num_kv_shared_layers"}); is && err == nil && n > 0 {
		return &Error{"num_kv_shared_layers", fmt.Sprint(n), "some layers have no keys and values of their own; " + remedy}
	}
	if raw, is := f.findField("is_encoder_decoder"); is && string(raw) == "true" {
		return &Error{"is_encoder_decoder", "true", "kvferry moves only the KV cache of decoder models"}
	}
	return nil
}

func (f fields) readModel(m *Model) (err error) {
	required := func(names []string) (n uint32) {
		got, is, wrong := f.readNumber(names)
		switch {
		case err != nil:
		case wrong != nil:
			err = wrong
		case !is || got == 0:
			err = &Error{names[0], "", "the field is missing, and so are the alternatives: " + strings.Join(names[1:], ", ")}
		}
		return got
	}
	optional := func(names []string) uint32 {
		got, _, wrong := f.readNumber(names)
		if err == nil {
			err = wrong
		}
		return got
	}
	m.Layers, m.Length = required(layersNames), optional(lengthNames)
	if raw, is := f.findField("kv_lora_rank"); is {
		if latent := required([]string{"kv_lora_rank"}); latent > 0 {
			m.MLA, m.Head = true, latent+required([]string{"qk_rope_head_dim"})
		} else {
			return &Error{"kv_lora_rank", shorten(raw), "want a whole number above 0"}
		}
	} else {
		heads := required(headsNames)
		if m.Head = optional(headNames); m.Head == 0 {
			if hidden := required(hiddenNames); err == nil {
				if hidden%heads != 0 {
					return &Error{"hidden_size", fmt.Sprint(hidden), fmt.Sprintf("it is not a multiple of the %d heads; add head_dim", heads)}
				}
				m.Head = hidden / heads
			}
		}
		if m.KVHeads = optional(kvNames); m.KVHeads == 0 || f.sharesOneHead() {
			if m.KVHeads = heads; f.sharesOneHead() {
				m.KVHeads = 1
			}
		}
	}
	for _, name := range dtypeNames {
		var word string
		if raw, is := f.findField(name); is && json.Unmarshal(raw, &word) == nil {
			m.Dtype = dtypes[strings.TrimPrefix(word, "torch.")]
			break
		}
	}
	return err
}

// sharesOneHead reports whether all heads share their keys and values, in the form that Falcon and StarCoder use.
func (f fields) sharesOneHead() bool {
	shared, given := f.findField("multi_query")
	newer, also := f.findField("new_decoder_architecture")
	return given && string(shared) == "true" && (!also || string(newer) == "false")
}

func shorten(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// HeadsOfRank returns the number of KV heads of one tensor-parallel rank. If there are more ranks than heads, several
// ranks have the same head. HeadsOfRank fails if the heads cannot be divided evenly. It returns 0 for MLA.
func (m *Model) HeadsOfRank(ranks uint32) (uint32, error) {
	switch {
	case m.MLA:
		return 0, nil
	case m.KVHeads%ranks == 0:
		return m.KVHeads / ranks, nil
	case ranks%m.KVHeads == 0:
		return 1, nil
	}
	return 0, &Error{"--tp", fmt.Sprint(ranks), fmt.Sprintf("%d KV heads cannot be divided evenly; give a divisor or a "+
		"multiple of that number", m.KVHeads)}
}

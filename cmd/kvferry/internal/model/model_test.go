package model

import (
	"errors"
	"testing"
)

// configs has the configurations of real models, reduced to the fields of the KV cache and some related fields.
var configs = map[string]struct {
	text string
	want Model
}{
	"llama-3.1-8b": {`{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
		"max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
		"rope_scaling": {"factor": 8.0}, "torch_dtype": "bfloat16", "vocab_size": 128256}`,
		Model{"LlamaForCausalLM", 32, 8, 128, false, "bfloat16", 131072}},
	"qwen3-8b, whose heads are not hidden_size / heads in its small sister": {`{"architectures": ["Qwen3ForCausalLM"],
		"head_dim": 128, "hidden_size": 1024, "max_position_embeddings": 40960, "num_attention_heads": 16,
		"num_hidden_layers": 28, "num_key_value_heads": 8, "sliding_window": null, "torch_dtype": "bfloat16"}`,
		Model{"Qwen3ForCausalLM", 28, 8, 128, false, "bfloat16", 40960}},
	"deepseek-v3": {`{"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "kv_lora_rank": 512,
		"max_position_embeddings": 163840, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
		"num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
		"torch_dtype": "bfloat16", "v_head_dim": 128}`,
		Model{"DeepseekV3ForCausalLM", 61, 0, 576, true, "bfloat16", 163840}},
	"gemma-3-27b, nested, sliding and full": {`{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {
		"head_dim": 128, "hidden_size": 5376, "max_position_embeddings": 131072, "num_attention_heads": 32,
		"num_hidden_layers": 62, "num_key_value_heads": 16, "layer_types": ["sliding_attention", "full_attention"]},
		"torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152, "num_attention_heads": 16,
		"num_hidden_layers": 27}}`,
		Model{"Gemma3ForConditionalGeneration", 62, 16, 128, false, "bfloat16", 131072}},
	"falcon-7b": {`{"architectures": ["FalconForCausalLM"], "hidden_size": 4544, "multi_query": true,
		"new_decoder_architecture": false, "num_attention_heads": 71, "num_hidden_layers": 32, "torch_dtype": "bfloat16",
		"max_position_embeddings": 2048}`,
		Model{"FalconForCausalLM", 32, 1, 64, false, "bfloat16", 2048}},
	"falcon-40b": {`{"architectures": ["FalconForCausalLM"], "hidden_size": 8192, "multi_query": true,
		"new_decoder_architecture": true, "num_attention_heads": 128, "num_kv_heads": 8, "num_hidden_layers": 60,
		"torch_dtype": "bfloat16"}`,
		Model{"FalconForCausalLM", 60, 8, 64, false, "bfloat16", 0}},
	"gpt2": {`{"architectures": ["GPT2LMHeadModel"], "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
		"n_positions": 1024}`,
		Model{"GPT2LMHeadModel", 12, 12, 64, false, "", 1024}},
	"chatglm3": {`{"architectures": ["ChatGLMModel"], "hidden_size": 4096, "kv_channels": 128,
		"multi_query_attention": true, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28,
		"seq_length": 8192, "torch_dtype": "float16"}`,
		Model{"ChatGLMModel", 28, 2, 128, false, "half", 8192}},
	"mpt-7b-8k with groups": {`{"architectures": ["MPTForCausalLM"], "attn_config": {"kv_n_heads": 8}, "d_model": 4096,
		"max_seq_len": 8192, "n_heads": 32, "n_layers": 32, "torch_dtype": "bfloat16"}`,
		Model{"MPTForCausalLM", 32, 8, 128, false, "bfloat16", 8192}},
	"opt-125m": {`{"architectures": ["OPTForCausalLM"], "hidden_size": 768, "max_position_embeddings": 2048,
		"num_attention_heads": 12, "num_hidden_layers": 12, "torch_dtype": "float16"}`,
		Model{"OPTForCausalLM", 12, 12, 64, false, "half", 2048}},
	"a new file, with dtype, in float32": {`{"architectures": ["Qwen2ForCausalLM"], "dtype": "float32", "hidden_size": 896,
		"num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "max_position_embeddings": 32768}`,
		Model{"Qwen2ForCausalLM", 24, 2, 64, false, "", 32768}},
	"one number for each layer, all the same": {`{"hidden_size": 64, "num_attention_heads": [4, 4], "num_hidden_layers": 2,
		"num_key_value_heads": [2, 2], "torch_dtype": "bfloat16"}`,
		Model{"model", 2, 2, 16, false, "bfloat16", 0}},
}

func TestParse(t *testing.T) {
	for name, c := range configs {
		got, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if *got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, *got, c.want)
		}
	}
}

// A model that cannot be moved, and a file that is no model, are refused with the field's name.
func TestParseRefuses(t *testing.T) {
	for text, field := range map[string]string{
		`{"layer_types": ["linear_attention", "full_attention"], "hidden_size": 64, "num_attention_heads": 4,
			"num_hidden_layers": 2}`: "layer_types",
		`{"text_config": {"linear_num_value_heads": 32, "hidden_size": 64}}`:                                   "linear_num_value_heads",
		`{"hybrid_override_pattern": "M-M*"}`:                                                                  "hybrid_override_pattern",
		`{"num_kv_shared_layers": 15, "num_hidden_layers": 30}`:                                                "num_kv_shared_layers",
		`{"is_encoder_decoder": true}`:                                                                         "is_encoder_decoder",
		`{"num_hidden_layers": 2, "hidden_size": 64}`:                                                          "num_attention_heads",
		`{"num_attention_heads": 4, "hidden_size": 64}`:                                                        "num_hidden_layers",
		`{"num_hidden_layers": "two", "num_attention_heads": 4, "hidden_size": 64}`:                            "num_hidden_layers",
		`{"num_hidden_layers": 2, "num_attention_heads": 7, "hidden_size": 64}`:                                "hidden_size",
		`{"num_hidden_layers": 2, "num_key_value_heads": [1, 2], "num_attention_heads": 4, "hidden_size": 64}`: "num_key_value_heads",
		`{"num_hidden_layers": 2, "kv_lora_rank": 0, "qk_rope_head_dim": 64}`:                                  "kv_lora_rank",
		`{"num_hidden_layers": 2, "kv_lora_rank": 512}`:                                                        "qk_rope_head_dim",
	} {
		m, err := Parse([]byte(text))
		var refused *Error
		if !errors.As(err, &refused) || refused.Field != field || refused.Remedy == "" {
			t.Errorf("%s: got %+v, %v; want %s refused", text, m, err, field)
		}
	}
	for _, text := range []string{"", "[]", "{", `"x"`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestHeadsOfRank(t *testing.T) {
	for _, c := range []struct{ heads, ranks, want uint32 }{{8, 1, 8}, {8, 2, 4}, {8, 8, 1}, {8, 16, 1}, {1, 4, 1}, {8, 3, 0},
		{6, 4, 0}} {
		got, err := (&Model{KVHeads: c.heads}).HeadsOfRank(c.ranks)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%d heads, %d ranks: got %d, %v", c.heads, c.ranks, got, err)
		}
	}
	if got, err := (&Model{MLA: true}).HeadsOfRank(3); got != 0 || err != nil {
		t.Errorf("with MLA: got %d, %v", got, err)
	}
}

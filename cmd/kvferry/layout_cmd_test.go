package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/config"
)

// The output of layout is a valid part of a configuration, and the pool has room for the requested number of requests.
func TestLayoutPrintsWhatAConfigurationTakes(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gqa := write("gqa.json", `{"architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 4096,
		"max_position_embeddings": 40960, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
		"torch_dtype": "bfloat16"}`)
	mla := write("mla.json", `{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61,
		"max_position_embeddings": 163840, "torch_dtype": "bfloat16"}`)
	for _, c := range []struct {
		args              []string
		page, pages       uint64
		heads, size, code uint32
	}{
		// 2 (keys and values) x 36 layers x 256 tokens x 4 heads x 128 elements x 2 bytes.
		{[]string{"--model", gqa, "--tp", "2"}, 2 * 36 * 256 * 4 * 128 * 2, 2 * 160, 4, 128, 0},
		{[]string{"--model", gqa, "--max-model-len", "1000", "--requests", "5", "--chunk-size", "16"},
			2 * 36 * 16 * 8 * 128 * 2, 5 * 63, 8, 128, 0},
		{[]string{"--model", mla, "--tp", "8", "--max-model-len", "4096", "--requests", "1"}, 61 * 256 * 576 * 2, 2 * 16, 0,
			576, 0},
		{[]string{"--model", gqa, "--dtype", "fp8_e4m3fn", "--max-model-len", "256"}, 2 * 36 * 256 * 8 * 128, 2, 8, 128, 0},
		{[]string{"--model", gqa, "--tp", "3"}, 0, 0, 0, 0, exitUsage},
		{[]string{"--model", gqa, "--dtype", "fp99"}, 0, 0, 0, 0, exitUsage},
		{[]string{"--model", gqa, "--requests", "0"}, 0, 0, 0, 0, exitUsage},
		{[]string{"--model", filepath.Join(folder, "none.json")}, 0, 0, 0, 0, exitUsage},
		{[]string{"--model", write("hybrid.json", `{"layers_block_type": ["mamba"]}`)}, 0, 0, 0, 0, exitFinding},
		{[]string{"--model", write("list.json", "[]")}, 0, 0, 0, 0, exitFinding},
		{nil, 0, 0, 0, 0, exitUsage},
	} {
		var out, asJSON, stderr bytes.Buffer
		code := run(context.Background(), append([]string{"layout"}, c.args...), nil, &out, &stderr)
		if code != int(c.code) {
			t.Errorf("%v: exit code %d: %s", c.args, code, &stderr)
		}
		if code != exitOK {
			if stderr.Len() == 0 || strings.Contains(stderr.String(), "Go value") {
				t.Errorf("%v: got %q", c.args, &stderr)
			}
			continue
		}
		file := "enable_pd: true\npd_role: receiver\npd_peer_host: 10.0.0.2\npd_peer_init_port: 7300\n" +
			"pd_peer_alloc_port: 7400\npd_buffer_device: cpu\n" + out.String()
		cfg, err := config.Parse("printed.yaml", []byte(file), nil)
		if err != nil {
			t.Errorf("%v: %v in\n%s", c.args, err, file)
			continue
		}
		requests := uint64(2)
		if slices.Contains(c.args, "5") {
			requests = 5
		}
		want := fmt.Sprintf("p2p_npu_buffer_size: %d,", c.pages*c.page/requests)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q is missing in\n%s", c.args, want, &out)
		}
		if cfg.PageBytes != c.page || uint64(cfg.Pages) != c.pages {
			t.Errorf("%v: got %d pages of %d bytes, want %d of %d", c.args, cfg.Pages, cfg.PageBytes, c.pages, c.page)
		}
		if code := run(context.Background(), append([]string{"layout", "--json"}, c.args...), nil, &asJSON, &stderr); code != 0 {
			t.Fatalf("%v: exit code %d: %s", c.args, code, &stderr)
		}
		var s sizing
		if err := json.Unmarshal(asJSON.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.PageBytes != c.page || s.Pages != c.pages || s.Layout.KVHeads != c.heads || s.Layout.Head != c.size ||
			s.Buffer != c.page*c.pages || s.TokenBytes*uint64(s.ChunkSize) != s.PageBytes {
			t.Errorf("%v: got %+v", c.args, s)
		}
	}
}

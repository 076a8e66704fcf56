package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/model"
	"github.com/kvferry/kvferry/runtime/config"
)

// A sizing gives the layout of a model's pages and the number of pages that a node needs.
type sizing struct {
	Model     string `json:"model"`
	ChunkSize uint32 `json:"chunk_size"`
	Layout    struct {
		Layers  uint32 `json:"num_layers"`
		KVHeads uint32 `json:"num_kv_heads,omitempty"`
		Head    uint32 `json:"head_size"`
		Dtype   string `json:"dtype"`
		MLA     bool   `json:"mla,omitempty"`
	} `json:"layout"`
	PageBytes  uint64 `json:"page_bytes"`  // bytes of a full chunk of all layers on one rank
	TokenBytes uint64 `json:"token_bytes"` // bytes of one token
	Tokens     uint32 `json:"max_model_len"`
	Requests   uint32 `json:"requests"`
	Pages      uint64 `json:"pages"`
	Buffer     uint64 `json:"pd_buffer_size"`      // bytes for the given number of requests and tokens
	NPU        uint64 `json:"p2p_npu_buffer_size"` // bytes for a request, in a node that shares with p2p_use_npu
}

func newLayoutCommand() *cobra.Command {
	var file, dtype string
	var chunk, tokens, tp, requests uint32
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "layout --model config.json",
		Short: "Print the page layout and the pool size for a model, as configuration lines",
		Long: `layout reads a model's config.json, in the form that Hugging Face's transformers writes,
and prints the configuration lines that depend on the model: chunk_size, layout and
pd_buffer_size. The values are for one tensor-parallel rank.

pd_buffer_size has room for --requests requests with the longest context. A receiver
gives one sender at most half of the pool (peer_share_pct), so the pool has room for at
least two requests. For a receiver, count the requests that are prefilled but not yet
read; for a sender, count the requests that are being sent. A node that shares can have a
cache of any size (max_local_cpu_size). With p2p_use_npu, it also has a pool on the NPU
for the chunks that it gets: p2p_npu_buffer_size has room for one request.`,
		Example: `  kvferry layout --model Qwen3-8B/config.json
  kvferry layout --model DeepSeek-V3/config.json --tp 8 --max-model-len 32768 --requests 8
  kvferry layout --model config.json --dtype fp8_e4m3fn --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--model is required: the path of the model's config.json")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return usageError{err}
			}
			m, err := model.Parse(text)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			s, err := computeSizing(m, chunk, tokens, tp, requests, dtype)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), s.formatConfig(file, tp))
			return err
		},
	}
	cmd.Flags().StringVar(&file, "model", "", "the model's config.json")
	cmd.Flags().Uint32Var(&chunk, "chunk-size", 256, "the number of tokens in a chunk, which must be the same on all nodes")
	cmd.Flags().Uint32Var(&tokens, "max-model-len", 0, "the number of tokens of the longest request; 0: the model's limit")
	cmd.Flags().Uint32Var(&tp, "tp", 1, "the number of tensor-parallel ranks")
	cmd.Flags().Uint32Var(&requests, "requests", 2, "the number of requests of that length that fit into the pool at a time")
	cmd.Flags().StringVar(&dtype, "dtype", "", "the type of the KV cache's elements, such as bfloat16 (default: the model's "+
		"type)")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// requestsMin is the number of longest requests for which a receiver's pool must have room, so that the share of one
// sender has room for one such request.
const requestsMin = 2

func computeSizing(m *model.Model, chunk, tokens, tp, requests uint32, dtype string) (s sizing, err error) {
	if tp == 0 || requests == 0 || chunk == 0 {
		return s, usagef("--tp is %d, --requests %d, --chunk-size %d: give 1 or more of each", tp, requests, chunk)
	}
	if tokens == 0 {
		tokens = m.Length
	}
	if tokens == 0 {
		return s, usagef("the config.json does not give the longest context; give --max-model-len")
	}
	if dtype == "" {
		dtype = m.Dtype
	}
	if dtype == "" {
		return s, usagef("the config.json does not give the type of the KV cache; give the type in which the engine computes " +
			"with --dtype (vLLM prints it at start)")
	}
	s.Model, s.ChunkSize, s.Tokens, s.Requests = m.Name, chunk, tokens, max(requests, requestsMin)
	s.Layout.Layers, s.Layout.Head, s.Layout.MLA, s.Layout.Dtype = m.Layers, m.Head, m.MLA, dtype
	if s.Layout.KVHeads, err = m.HeadsOfRank(tp); err != nil {
		return s, usageError{err}
	}
	// A configuration determines the size of a page.
	c, err := config.Parse("layout", []byte("enable_pd: true\npd_role: receiver\npd_peer_host: localhost\n"+
		"pd_peer_init_port: 1\npd_peer_alloc_port: 2\npd_buffer_device: cpu\npd_buffer_size: 1\n"+s.formatLayout()), nil)
	var configErr *config.Error
	if errors.As(err, &configErr) {
		p := configErr.Problems[0]
		return s, usagef("%s %q: %s", strings.TrimPrefix(p.Field, "extra_config.kvferry."), p.Value, p.Remedy)
	} else if err != nil {
		return s, err
	}
	s.PageBytes, s.TokenBytes = c.PageBytes, c.PageBytes/uint64(chunk)
	s.Pages = uint64((tokens+chunk-1)/chunk) * uint64(s.Requests)
	s.Buffer = s.Pages * s.PageBytes
	s.NPU = s.Buffer / uint64(s.Requests)
	return s, nil
}

// formatLayout returns the lines that describe the model in a configuration.
func (s *sizing) formatLayout() string {
	l := &s.Layout
	heads, mla := fmt.Sprintf("num_kv_heads: %d, ", l.KVHeads), ""
	if l.MLA {
		heads, mla = "", ", mla: true"
	}
	return fmt.Sprintf("chunk_size: %d\nextra_config:\n  kvferry:\n    layout: {num_layers: %d, %shead_size: %d, dtype: %s%s}\n",
		s.ChunkSize, l.Layers, heads, l.Head, l.Dtype, mla)
}

func (s *sizing) formatConfig(file string, tp uint32) string {
	rank := ""
	if tp > 1 {
		rank = fmt.Sprintf(", each of %d ranks", tp)
	}
	const kib, huge = 1 << 10, 2 << 20 // The unit of ulimit, and the size of a huge page unless the host has another.
	return fmt.Sprintf("# %s (%s)%s: a token takes %d bytes, a page %d bytes\n"+
		"# In a node that shares with p2p_use_npu: p2p_npu_buffer_size: %d, for one request\n"+
		"# With pool.lock: ulimit -l %d; with pool.huge_pages: sysctl vm.nr_hugepages=%d, of 2 MiB each\n"+
		"pd_buffer_size: %d   # %d pages: %d requests of %d tokens\n%s", s.Model, file, rank, s.TokenBytes, s.PageBytes,
		s.NPU, (s.Buffer+kib-1)/kib, (s.Buffer+huge-1)/huge, s.Buffer, s.Pages, s.Requests, s.Tokens, s.formatLayout())
}

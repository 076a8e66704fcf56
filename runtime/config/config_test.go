package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

const receiverYAML = `
enable_pd: true
pd_role: receiver
transfer_channel: auto
pd_peer_host: 10.0.0.2
pd_peer_init_port: [7300, 7301]
pd_peer_alloc_port: [7400, 7401]
pd_buffer_size: 1207959552
pd_buffer_device: cpu
chunk_size: 256
extra_config:
  kvferry:
    layout: {num_layers: 36, num_kv_heads: 4, head_size: 128, dtype: bfloat16}
`

const senderYAML = `
enable_pd: true
pd_role: sender
pd_peer_host: 10.0.0.1
pd_proxy_host: proxy.local
pd_proxy_port: 8500
pd_buffer_size: 64MiB
pd_buffer_device: cpu
`

const bothYAML = `
enable_pd: true
pd_role: both
pd_peer_host: 10.0.0.2
pd_peer_init_port: [7300, 7301]
pd_peer_alloc_port: [7400, 7401]
pd_proxy_host: proxy.local
pd_proxy_port: 8500
pd_buffer_size: 64MiB
pd_buffer_device: cpu
`

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("node.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReceiver(t *testing.T) {
	c := mustParse(t, receiverYAML)
	if c.Role != Receiver || c.Channel != ChannelAuto || c.ChunkTokens != 256 || c.RankCount() != 2 {
		t.Errorf("got role %v, channel %v, %d tokens, %d ranks", c.Role, c.Channel, c.ChunkTokens, c.RankCount())
	}
	// LMCache's own example: 36 layers, 4 KV heads of 128 (TP 2), bfloat16, 256 tokens.
	if c.PageBytes != 18_874_368 || c.Pages != 64 || c.BufferBytes != 64*18_874_368 {
		t.Errorf("got %d pages of %d bytes in %d", c.Pages, c.PageBytes, c.BufferBytes)
	}
	if e, _ := c.AllocEndpoint(1); e != (protocol.Endpoint{Host: "10.0.0.2", Port: 7401}) {
		t.Errorf("got allocation endpoint %v", e)
	}
	if e, served := c.InitEndpoint(2); served {
		t.Errorf("rank 2 is served at %v", e)
	}
	if e, served := c.TCPEndpoint(1); !served || e != (protocol.Endpoint{Host: "10.0.0.2"}) {
		t.Errorf("got TCP endpoint %v, %v", e, served)
	}
	m := &c.Machine
	if m.AllocTimeout != 2*effects.Second || m.PutTimeout != 30*effects.Second || m.PeerSharePct != 50 ||
		m.ReplyForm != protocol.FormAscend {
		t.Errorf("got %+v", m)
	}
	if c.Limits != protocol.DefaultLimits() {
		t.Errorf("got limits %+v, the defaults differ from protocol's", c.Limits)
	}
}

func TestSenderLeavesTheLayoutToTheEngine(t *testing.T) {
	c := mustParse(t, senderYAML)
	if c.Pages != 0 || c.BufferBytes != 64<<20 {
		t.Fatalf("got %d pages in %d bytes before there is a layout", c.Pages, c.BufferBytes)
	}
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
		Shape: protocol.Shape{Dims: [4]uint32{2, 3, 256, 512}, N: 4}}
	if err := c.SetLayout(layout); err != nil {
		t.Fatal(err)
	}
	// 64 MiB are 42.67 pages of 1.5 MiB.
	if c.Pages != 43 || c.BufferBytes != 43*3<<19 {
		t.Errorf("got %d pages in %d bytes, want 43, rounded up", c.Pages, c.BufferBytes)
	}
	layout.Shape.Dims[2] = 128
	var e *Error
	if err := c.SetLayout(layout); !errors.As(err, &e) || e.Problems[0].Code != Conflict ||
		e.Problems[0].Field != "chunk_size" {
		t.Errorf("got %v for chunks of 128 tokens", err)
	}
}

func TestOwnKeys(t *testing.T) {
	c := mustParse(t, senderYAML+`
extra_config:
  somebody_else: {anything: [goes]}
  kvferry:
    reply_form: async-2
    trust_uncommitted: no
    put_timeout: 2.5
    get_timeout: "250ms"
    alloc_timeout: 1
    peer_share_pct: 12.00
    store: {retention: cache}
    layout: {num_layers: 61, head_size: 576, dtype: half, mla: true}
    limits: {message_bytes: 2MiB, keys_per_batch: 64}
    data: {copy_threads: 2, tcp_host: "[fd00::1]", shm_dir: /run/kvferry, nt_threshold_bytes: 1_048_576}
    log: {level: debug, format: json}
`)
	m := &c.Machine
	if m.ReplyForm != protocol.FormAsync2 || m.PutTimeout != 2500*effects.Millisecond ||
		m.GetWaitMax != 250*effects.Millisecond || m.AllocTimeout != effects.Second || m.PeerSharePct != 12 ||
		m.Retention != store.Cache {
		t.Errorf("got %+v", m)
	}
	if want := (protocol.Shape{Dims: [4]uint32{1, 61, 256, 576}, N: 4}); c.Layout.Shape != want ||
		c.Layout.Format != protocol.FormatKVMLA {
		t.Errorf("got layout %v, want %v", c.Layout, want)
	}
	if c.Limits.MessageBytes != 2<<20 || c.Limits.ArrayLen != 64 {
		t.Errorf("got limits %+v", c.Limits)
	}
	if want := (Data{CopyThreads: 2, NonTemporalBytes: 1 << 20, TCPHost: "fd00::1",
		SHMDir: "/run/kvferry"}); !reflect.DeepEqual(c.Data, want) {
		t.Errorf("got data %+v, want %+v", c.Data, want)
	}
	if c.Log != (Log{Level: slog.LevelDebug, JSON: true}) {
		t.Errorf("got log %+v", c.Log)
	}
}

// With use_layerwise a page holds one layer, and a pool as many times more.
func TestLayerwise(t *testing.T) {
	c := mustParse(t, receiverYAML+"use_layerwise: true\n")
	l := &c.Machine
	if l.Layers != 36 || c.PageBytes != 18_874_368/36 || c.Pages != 64*36 || c.Layout.Shape.Dims[1] != 1 {
		t.Errorf("got %d layers, %d pages of %d bytes, layout %v", l.Layers, c.Pages, c.PageBytes, c.Layout.Shape)
	}
	if l.BundlesMax != 0 || l.WholeChunks || l.BundleTTL != 0 || l.BundleMaxTTL != 0 { // The machine's defaults.
		t.Errorf("got %+v", l.Bundling)
	}
	c = mustParse(t, senderYAML+"use_layerwise: true\n")
	mla := protocol.Layout{Format: protocol.FormatKVMLA, Dtype: protocol.DtypeBFloat16,
		Shape: protocol.Shape{Dims: [4]uint32{1, 61, 256, 576}, N: 4}}
	if err := c.SetLayout(mla); err != nil {
		t.Fatal(err)
	}
	if l := &c.Machine; l.Layers != 61 || c.PageBytes != 256*576*2 || l.MergeBytes != 8<<20 || l.RunsMax != 256 {
		t.Errorf("got %d layers, pages of %d bytes, %+v", l.Layers, c.PageBytes, l.Layerwise)
	}
	mla.Format, mla.Shape = protocol.FormatKV2TD, protocol.Shape{Dims: [4]uint32{2, 256, 576}, N: 3}
	var e *Error
	if err := c.SetLayout(mla); !errors.As(err, &e) || e.Problems[0].Field != layerwiseKey {
		t.Errorf("a layout without layers: %v", err)
	}
}

// registerYAML is of a rank of an engine whose model has 8 KV heads: two ranks, and pages of half of a rank's heads.
const registerYAML = `
enable_pd: true
pd_role: both
pd_peer_host: 10.0.0.2
pd_peer_init_port: [7300, 7301]
pd_peer_alloc_port: [7400, 7401]
pd_buffer_device: cpu
chunk_size: 16
extra_config:
  kvferry:
    layout: {num_layers: 3, num_kv_heads: 4, head_size: 128, dtype: bfloat16}
    register: {engine_id: p0, tp_size: 4, tp_rank: 2, kv_heads: 16, cell_heads: 2, blocks: 100, groups: [0, 1, 65535]}
`

// With register.engine_id a page is one cell, and the pool has those of all blocks.
func TestRegister(t *testing.T) {
	c := mustParse(t, registerYAML)
	g := c.Geometry(1)
	if c.PageBytes != 2*16*2*128*2 || c.Pages != 3*100*2 || c.BufferBytes != uint64(c.Pages)*c.PageBytes {
		t.Errorf("%d pages of %d bytes, %d in all", c.Pages, c.PageBytes, c.BufferBytes)
	}
	if g.Check() != nil || g.Rank != 3 || g.CountPages() != uint64(c.Pages) || g.BlockTokens != 16 || g.SharesPerBlock() != 2 ||
		g.Layers[2] != (geometry.Layer{Number: 2, Group: geometry.Shared}) {
		t.Errorf("got %+v: %v", g, g.Check())
	}
	if r := c.Machine.Registering; r.RegistrationLease != 30*effects.Second || r.RegisterTimeout != 480*effects.Second ||
		r.RegisterWindow != 256 {
		t.Errorf("got %+v", r)
	}
	if receiver := mustParse(t, receiverYAML); receiver.Geometry(0) != nil {
		t.Error("a receiver has a geometry")
	}
	mla := mustParse(t, strings.NewReplacer("kv_heads: 16, cell_heads: 2, ", "", "num_kv_heads: 4, head_size: 128",
		"mla: true, head_size: 576").Replace(registerYAML))
	if g := mla.Geometry(0); mla.PageBytes != 16*576*2 || mla.Pages != 300 || g.SharesPerBlock() != 1 || g.Heads != 0 {
		t.Errorf("with MLA: %d pages of %d bytes, %+v", mla.Pages, mla.PageBytes, g)
	}
}

// Engines whose blocks pair go together, others are told why not.
func TestCompareRegister(t *testing.T) {
	a := mustParse(t, registerYAML)
	for change, want := range map[string]string{
		"engine_id: p0, tp_size: 4, tp_rank: 2|engine_id: d0, tp_size: 2": "",
		"tp_size: 4|tp_size: 4":                               "register.engine_id",
		"engine_id: p0, tp_size: 4|engine_id: d0, tp_size: 8": "",
		"engine_id: p0|engine_id: d0, pp_size: 2":             "",
	} {
		from, to, _ := strings.Cut(change, "|")
		text := strings.NewReplacer(from, to, "10.0.0.2", "10.0.0.3").Replace(registerYAML)
		if strings.Contains(to, "tp_size: 2") || strings.Contains(to, "tp_size: 8") {
			heads := map[bool]string{true: "num_kv_heads: 8", false: "num_kv_heads: 2"}[strings.Contains(to, "tp_size: 2")]
			text = strings.Replace(text, "num_kv_heads: 4", heads, 1)
		}
		b := mustParse(t, text)
		got := ""
		for _, p := range Compare(a, b) {
			got = strings.TrimPrefix(p.Field, ownPrefix)
		}
		if got != want {
			t.Errorf("%s: %q, want %q: %v", change, got, want, Compare(a, b))
		}
	}
	b := mustParse(t, strings.NewReplacer("p0", "d0", "cell_heads: 2", "cell_heads: 4").Replace(registerYAML))
	if p := Compare(a, b); len(p) == 0 || !strings.Contains(p[0].Field, "cell_heads") {
		t.Errorf("unequal pages: %v", p)
	}
	if p := Compare(a, mustParse(t, bothYAML)); len(p) == 0 {
		t.Error("who registers goes with who does not")
	}
}

func environ(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	c, err := Parse("node.yaml", []byte(receiverYAML), environ(
		"LMCACHE_PD_PEER_INIT_PORT", "9300, 9301",
		"LMCACHE_NIXL_PEER_HOST", "decoder-7",
		"LMCACHE_PD_PULL_MODE", "False",
		"LMCACHE_CHUNK_SIZE", "",
		"LMCACHE_PD_PEER_ALLOC_PORT", "[9400,9401]",
		"LMCACHE_RETRIEVE_LOCATIONS", "[PDBackend]",
		"LMCACHE_EXTRA_CONFIG", `{"kvferry": {"lease": 12.5, "layout": {"num_layers": 18}}, "other": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := c.InitEndpoint(1); e != (protocol.Endpoint{Host: "decoder-7", Port: 9301}) {
		t.Errorf("got %v", e)
	}
	if e, _ := c.AllocEndpoint(0); e.Port != 9400 {
		t.Errorf("got %v", e)
	}
	if c.Machine.Lease != 12500*effects.Millisecond || c.Layout.Shape.Dims[1] != 18 || c.Layout.Shape.Dims[3] != 512 {
		t.Errorf("got lease %v, layout %v: only what the variable names is overridden", c.Machine.Lease, c.Layout.Shape)
	}
}

func TestEnvironmentProblems(t *testing.T) {
	_, err := Parse("node.yaml", []byte(receiverYAML), environ(
		"LMCACHE_PD_DELAY_PULL", "true",
		"LMCACHE_PD_PEER_ALLOC_PORT", "7400,x",
		"LMCACHE_EXTRA_CONFIG", `{"kvferry": {"leese": 12.5}}`))
	want := `environment: LMCACHE_EXTRA_CONFIG`
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`environment: LMCACHE_PD_DELAY_PULL: "true": it needs pull mode: set pd_pull_mode: true on both ends, or remove it`,
		`environment: LMCACHE_PD_PEER_ALLOC_PORT: "[7400, x]": write a port from 1 to 65535 (item 2 of 2 is "x")`,
		`environment: extra_config.kvferry.leese: kvferry has no such key; did you mean lease?`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got\n%v\nwant a line %q", err, want)
		}
	}
	_, err = Parse("node.yaml", []byte(receiverYAML), environ("LMCACHE_EXTRA_CONFIG", `{"kvferry": `))
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// No text makes Parse panic or fail with anything but an *Error that says something.
func TestAnyTextIsReadOrRefused(t *testing.T) {
	words := rapid.SampledFrom([]string{"pd_role", "enable_pd", "extra_config", "kvferry", "layout", "chunk_size", ": ",
		":", "\n", "\n  ",
		"{", "}", "[", "]", ", ", "- ", "&a ", "*a", "<<", "true", "sender", "1", "-1", "1e400", "0x10", ".inf", "~", "'",
		"\"", "#", "!!int ", "---\n", "\t", "\x00", "\xff"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 0, 40).Draw(t, "words"), "")
		_, err := Parse("node.yaml", []byte(text), nil)
		var e *Error
		if err != nil && (!errors.As(err, &e) || len(e.Problems) == 0) {
			t.Fatalf("%q: %#v", text, err)
		}
		if e != nil {
			for _, p := range e.Problems {
				if p.Code == 0 || p.Remedy == "" || p.File == "" {
					t.Fatalf("%q: problem without code, file or remedy: %+v", text, p)
				}
			}
		}
	})
}

func TestSizesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Max(1<<63-1).Draw(t, "n") >> rapid.UintMax(62).Draw(t, "shift") << rapid.UintMax(20).Draw(t,
			"back") & (1<<63 - 1)
		if got, err := parseSize(formatSize(n)); err != nil || got != n {
			t.Fatalf("%d became %q became %d, %v", n, formatSize(n), got, err)
		}
	})
}

func TestNanosecondsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "ns"))
		seconds := fmt.Sprintf("%d.%09d", want/time.Second, want%time.Second)
		if got, err := parseSeconds(seconds); err != nil || got != want {
			t.Fatalf("%s seconds became %v, %v; want %v", seconds, got, err, want)
		}
	})
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"pd_rol", "pd_role"}, {"pd_peer_init_ports", "pd_peer_init_port"}, {"chunk_szie", "chunk_size"},
		{"entirely_other", ""},
	} {
		var known []string
		for _, k := range nodeSchema.top {
			known = append(known, k.name)
		}
		if got := nearestName(c.name, known); got != c.want {
			t.Errorf("nearest to %s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFileThatIsTooLong(t *testing.T) {
	_, err := Parse("node.yaml", make([]byte, fileBytesMax+1), nil)
	if err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v", err)
	}
}

func TestDocumentedExamplesParse(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "```")
	var configs []*Config
	for _, p := range parts {
		if text, isYAML := strings.CutPrefix(p, "yaml\n"); isYAML {
			configs = append(configs, mustParse(t, text))
		}
	}
	if len(configs) != 4 {
		t.Fatalf("found %d examples, want two pairs", len(configs))
	}
	for pair := range slices.Chunk(configs, 2) {
		if problems := Compare(pair[0], pair[1]); len(problems) > 0 {
			t.Errorf("the examples do not go together: %v", problems)
		}
	}
}

// No byte of a sender that cannot commit arrives on any plane, so believing it unseen would deliver what a page held
// before.
func TestTrustUncommittedIsRefused(t *testing.T) {
	for _, channel := range []string{"auto", "shm", "tcp", "hccl"} {
		text := strings.Replace(senderYAML, "transfer_channel: auto", "transfer_channel: "+channel, 1)
		_, err := Parse("f", []byte(text+"\nextra_config: {kvferry: {trust_uncommitted: true}}\n"), nil)
		var e *Error
		if !errors.As(err, &e) || e.Problems[0].Field != ownPath("trust_uncommitted") || e.Problems[0].Code != Unsupported {
			t.Errorf("%s: %v; want trust_uncommitted refused", channel, err)
		}
	}
}

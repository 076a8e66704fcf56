package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// lmcacheFile reads one of LMCache's own files. Hosts come from the environment, so that the files' ports are
// free whatever else runs here, and what they ask of an NPU or of libnixl is overridden as users could on a machine
// without it.
func lmcacheFile(t *testing.T, folder, file string) *config.Config {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("config", "testdata", "1p1d", folder, file))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"LMCACHE_PD_PROXY_HOST": ownHost(), "LMCACHE_PD_PEER_HOST": ownHost()}
	if folder != "legacy" {
		env["LMCACHE_TRANSFER_CHANNEL"] = "auto"
	}
	if folder == "lmcache-ascend" {
		env["LMCACHE_PD_BUFFER_DEVICE"] = "cpu"
	}
	cfg, err := config.Parse(file, data, func(name string) (string, bool) { value, is := env[name]; return value, is })
	if err != nil {
		t.Fatal(err)
	}
	// What an engine would say of its model.
	if err := cfg.SetLayout(protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
		Shape: protocol.Shape{Dims: [4]uint32{2, 2, cfg.ChunkTokens, 64}, N: 4}}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The prefiller and the decoder of LMCache's 1p1d examples run from their files: every rank moves a chunk, and the
// proxy that the prefiller names hears of it.
func TestLMCacheExamplesRun(t *testing.T) {
	for _, folder := range []string{"lmcache", "lmcache-ascend", "legacy"} {
		t.Run(folder, func(t *testing.T) {
			sCfg, rCfg := lmcacheFile(t, folder, "lmcache-prefiller-config.yaml"),
				lmcacheFile(t, folder, "lmcache-decoder-config.yaml")
			proxy := startProxyAt(t, effects.Addr(sCfg.Proxy))
			for rank := range rCfg.RankCount() {
				s, r := openRank(t, sCfg, rank), openRank(t, rCfg, rank)
				keys := []string{fmt.Sprintf("m@%d@%d@1f@bfloat16", rCfg.RankCount(), rank)}
				pages := mustReserve(t, s, 1)
				fill(t, pages, keys)
				peer := runtime.Peer{Host: rCfg.PeerHost, InitPort: rCfg.InitPorts[rank], AllocPort: rCfg.AllocPorts[rank]}
				if res, err := s.Sender().Put(within(t), runtime.Put{Peer: peer, Request: "17", Keys: keys, Pages: pages,
					Last: true}); err != nil || res.Sent != 1 {
					t.Fatalf("rank %d: put: %+v, %v", rank, res, err)
				}
				if got := <-proxy.told; got != "17" {
					t.Errorf("the proxy was told of %q", got)
				}
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "17", Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, got, keys, int(rCfg.PageBytes))
				mustRelease(t, got)
				mustRelease(t, pages)
				mustClose(t, s)
				mustClose(t, r)
			}
		})
	}
}

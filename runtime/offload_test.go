package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// offloadSenderConfig is a prefill's whose pool is host memory, of so many pages, beside a pd_buffer_size of a few.
func offloadSenderConfig(tb testing.TB, channel string, few, pages int) *config.Config {
	cfg := parse(tb, "sender", channel, few,
		fmt.Sprintf("pd_skip_proxy_notification: true\npd_pull_mode: true\npd_peer_host: 127.0.0.1\n"+
			"pd_pull_done_port: 1\npd_use_cpu_offload: true\npd_cpu_buffer_size: %d\npd_pull_backpressure_reserve_pct: 0\n",
			pages*pageBytes))
	cfg.Pull.DonePorts[0] = 0
	return cfg
}

// With pd_use_cpu_offload what an engine reserves is of pd_cpu_buffer_size: a request of 100 chunks goes at once
// through a prefill whose pd_buffer_size holds two. Nothing is copied within the node: its pages are lent as they were
// filled.
func TestOffloadReservesHostMemory(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			const chunks, lastTokens = 100, 5
			s := open(t, offloadSenderConfig(t, channel, 2, chunks))
			copies := 0
			s.Watch(func(effects.Event) {}, func(e effects.Effect) {
				if _, ok := e.(*effects.Copy); ok {
					copies++
				}
			})
			r := open(t, delayedConfig(t, channel, 4))
			keys := keysOf("request", chunks)
			pages := mustReserve(t, s, chunks)
			fill(t, pages, keys)
			res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages,
				Last: true, LastChunkTokens: lastTokens})
			if err != nil || res.Sent != chunks {
				t.Fatalf("%+v, %v", res, err)
			}
			if got := s.Stats(); got.PagesLeased != chunks || got.PagesFree != 0 || isReturned(res) {
				t.Errorf("while nobody has read: %+v, memory returned: %v", got, isReturned(res))
			}
			if last := mustFetch(t, r, "r", keys).lengths[chunks-1]; last != pageBytes/16*lastTokens {
				t.Errorf("the last chunk has %d bytes", last)
			}
			mustRelease(t, pages)
			waitFor(t, s, "the end of the offer", func(s rank.Stats) bool { return s.PagesFree == chunks && s.Puts == 0 })
			mustClose(t, r)
			mustClose(t, s)
			if copies > 0 {
				t.Errorf("%d copies were made of chunks that are in host memory", copies)
			}
		})
	}
}

// A pool that is too small says which key makes it larger.
func TestOffloadNamesItsKey(t *testing.T) {
	s := open(t, offloadSenderConfig(t, "shm", 8, 3))
	_, err := s.Sender().Reserve(within(t), 4)
	wantCode(t, err, effects.TooLarge)
	if err != nil && !strings.Contains(err.Error(), "enlarge pd_cpu_buffer_size") {
		t.Errorf("the remedy names another key: %v", err)
	}
	mustClose(t, s)
}

package runtime_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/backing"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

func inHugePages(t *testing.T, role, channel string, pages int) *config.Config {
	cfg := receiverConfig(t, channel, nil)
	if role == "sender" {
		cfg = parse(t, role, channel, pages, "pd_skip_proxy_notification: true\n")
	}
	cfg.Pages, cfg.BufferBytes, cfg.Pool.HugePages = uint32(pages), uint64(pages)*pageBytes, true
	return cfg
}

// With pool.huge_pages the pages of both ends lie in huge pages of the host, and chunks go as without, over planes that
// map the other end's pages and over those that do not. Afterwards all are free again.
func TestAPoolInHugePages(t *testing.T) {
	const pages = 64
	before := backing.AvailableHugePages()
	if need := 2 * before.RoundUp(pages*pageBytes) / max(1, before.PageBytes); before.Free < need || before.PageBytes == 0 {
		t.Skipf("%d huge pages are free, %d are needed: make huge-test", before.Free, need)
	}
	for _, channel := range []string{"shm", "tcp"} {
		for name, more := range map[string][]runtime.Option{"alone": nil, "attachable": {runtime.WithAttachable()}} {
			t.Run(channel+" "+name, func(t *testing.T) {
				s := open(t, inHugePages(t, "sender", channel, pages), more...)
				r := open(t, inHugePages(t, "receiver", channel, pages))
				want := 2 * before.RoundUp(pages*pageBytes) / before.PageBytes
				if got := before.Free - backing.AvailableHugePages().Free; got != want {
					t.Errorf("%d huge pages are taken, want %d", got, want)
				}
				keys := keysOf("huge", 4)
				reserved := mustReserve(t, s, len(keys))
				fill(t, reserved, keys)
				if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Keys: keys, Pages: reserved}); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, reserved)
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: keys, Timeout: limit})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, got, keys, pageBytes)
				mustRelease(t, got)
				mustClose(t, s)
				mustClose(t, r)
				if got := backing.AvailableHugePages(); got != before {
					t.Errorf("there are %+v after the end, and were %+v", got, before)
				}
			})
		}
	}
}

// Where there are not so many huge pages a node does not open, and says how many are missing and what to do.
func TestAPoolWithoutHugePages(t *testing.T) {
	room := backing.AvailableHugePages()
	cfg := inHugePages(t, "sender", "shm", 64)
	cfg.Pages = uint32((room.Free+1)*max(room.PageBytes, pageBytes)/pageBytes) + 1
	n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open))
	if err == nil {
		mustClose(t, n)
	}
	wantCode(t, err, effects.NoMemory)
	var s *backing.HugeShortage
	if !errors.As(err, &s) {
		t.Fatalf("%v; want a shortage of huge pages", err)
	}
	wants := []string{"remove pool.huge_pages"}
	if room.PageBytes > 0 {
		wants = append(wants, "huge pages of", "sysctl vm.nr_hugepages=")
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

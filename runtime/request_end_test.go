package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// startGet begins a Get that waits, and returns what ends with its error.
func startGet(t *testing.T, r *runtime.Node, request string, keys []string) <-chan error {
	t.Helper()
	before := r.Stats().Gets
	ended := make(chan error, 1)
	go func() {
		got, err := r.Receiver().Get(context.Background(), runtime.Get{Request: request, Keys: keys, Timeout: limit})
		if got != nil {
			if err := got.Release(context.Background()); err != nil {
				t.Error(err)
			}
		}
		ended <- err
	}()
	waitFor(t, r, "a get that waits", func(s rank.Stats) bool { return s.Gets > before })
	return ended
}

// wantEnd takes what ends and wants its code.
func wantEnd(t *testing.T, ended <-chan error, want effects.Code) {
	t.Helper()
	select {
	case err := <-ended:
		if runtime.CodeOf(err) != want {
			t.Errorf("it ended as %v, want %v: %v", runtime.CodeOf(err), want, err)
		}
	case <-time.After(limit / 2):
		t.Errorf("it waits still, want %v", want)
	}
}

// The word that a request failed needs no page: the receiver has none. Nor a batch of it that came.
func TestAnEndNeedsNoPage(t *testing.T) {
	s, r := open(t, senderConfig(t, "shm", effects.Addr{})), open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, s)
	defer mustClose(t, r)
	all := r.Stats().PagesTotal
	pages := mustReserve(t, s, all)
	if _, err := s.Sender().Put(within(t), runtime.Put{
		Peer: peerOf(r), Request: "others", Keys: keysOf("others", all), Pages: pages,
	}); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	if free := r.Stats().PagesFree; free != 0 {
		t.Fatalf("%d pages are free", free)
	}
	ended := startGet(t, r, "r", keysOf("r", 2))
	if err := s.Sender().EndRequest(within(t), runtime.RequestEnd{Request: "r", Peer: peerOf(r), Code: effects.NoMemory}); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, ended, effects.SenderFailed)
}

// Nor a handshake: the two are of different layouts, so that nothing else can go between them.
func TestAnEndNeedsNoHandshake(t *testing.T) {
	cfg, err := config.Parse("test", []byte(strings.Replace(fmt.Sprintf(nodeText, "receiver", "shm", 8*pageBytes,
		"pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n"), "chunk_size: 16", "chunk_size: 32", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	s, r := open(t, senderConfig(t, "shm", effects.Addr{})), open(t, cfg)
	defer mustClose(t, s)
	defer mustClose(t, r)
	ended := startGet(t, r, "r", keysOf("r", 1))
	pages := mustReserve(t, s, 1)
	_, err = s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("r", 1), Pages: pages})
	if runtime.CodeOf(err) != effects.Mismatch {
		t.Fatalf("it ended as %v", err)
	}
	mustRelease(t, pages)
	if err := s.Sender().EndRequest(within(t), runtime.RequestEnd{Request: "r", Peer: peerOf(r), Code: effects.Mismatch}); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, ended, effects.SenderFailed)
}

// Requests of two tenants with one id are two requests: the end of one leaves the Get of the other waiting, whether it
// comes before or after the Get.
func TestAnEndIsOfOneTenant(t *testing.T) {
	s, r := open(t, senderConfig(t, "shm", effects.Addr{})), open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, s)
	defer mustClose(t, r)
	tenant := effects.TenantOfSalt("salt-of-a")
	end := func(tenant effects.Tenant) {
		t.Helper()
		err := s.Sender().EndRequest(within(t), runtime.RequestEnd{Request: "r", Tenant: tenant, Peer: peerOf(r), Code: effects.NoMemory})
		if err != nil {
			t.Fatal(err)
		}
	}
	end(effects.TenantOfSalt("salt-of-b"))
	ended := startGet(t, r, "r", []string{keysOf("r", 1)[0] + "@kvft%" + tenant.String()})
	end(0)
	select {
	case err := <-ended:
		t.Fatalf("the end of another tenant's request ended the get: %v", err)
	default:
	}
	end(tenant)
	wantEnd(t, ended, effects.SenderFailed)
}

// A receiver says why what was sent is of no use to its engine, and the sender hears it with its next word.
func TestAReasonComesBack(t *testing.T) {
	s, r := open(t, senderConfig(t, "shm", effects.Addr{})), open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, s)
	defer mustClose(t, r)
	pages := mustReserve(t, s, 1)
	if _, err := s.Sender().Put(within(t), runtime.Put{
		Peer: peerOf(r), Request: "r", Keys: keysOf("r", 1), Pages: pages, Last: true,
	}); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	end := runtime.RequestEnd{Request: "r", Peer: peerOf(r)}
	if err := s.Sender().EndRequest(within(t), end); err != nil {
		t.Fatal(err)
	}
	if err := r.Receiver().AbandonWithReason("r", "hash_bits is 64 here and 256 there", 0); err != nil {
		t.Fatal(err)
	}
	end.Request = "next"
	if err := s.Sender().EndRequest(within(t), end); runtime.CodeOf(err) != effects.NotSent {
		t.Errorf("it ended as %v", err)
	}
	end.Request = "later"
	if err := s.Sender().EndRequest(within(t), end); err != nil {
		t.Errorf("it is said twice: %v", err)
	}
}

// Ends that cannot be told are refused by the field that is wrong.
func TestEndsAreChecked(t *testing.T) {
	s, r := open(t, senderConfig(t, "shm", effects.Addr{})), open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, s)
	defer mustClose(t, r)
	for _, x := range []struct {
		end   runtime.RequestEnd
		field string
	}{
		{runtime.RequestEnd{Peer: peerOf(r)}, "Request"},
		{runtime.RequestEnd{Request: "r", Peer: peerOf(r), Code: 99}, "Code"},
		{runtime.RequestEnd{Request: "r"}, "Peer"},
	} {
		err := s.Sender().EndRequest(within(t), x.end)
		var said *runtime.Error
		if !errors.As(err, &said) || said.Code != effects.Invalid || said.Field != x.field {
			t.Errorf("it ended as %v, want %s", err, x.field)
		}
	}
	if err := r.Sender().EndRequest(within(t), runtime.RequestEnd{Request: "r", Peer: peerOf(r)}); err == nil {
		t.Error("a receiver tells how a request ended")
	}
}

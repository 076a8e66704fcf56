package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// A stream is an engine that puts one chunk after another to a receiver, whose engine reads each and compares its bytes.
type stream struct {
	*testing.T
	sender, receiver *runtime.Node
	name             string
	arrived, failed  atomic.Int64
	lastError        atomic.Pointer[error]
}

// run puts chunks until the context ends.
func (s *stream) run(ctx context.Context) {
	pages := mustReserve(s.T, s.sender, 1)
	defer mustRelease(s.T, pages)
	for i := 0; ctx.Err() == nil; i++ {
		request := s.name + "-" + string(rune('a'+i%26)) + time.Now().Format("150405.000000000")
		keys := keysOf(request, 1)
		fill(s.T, pages, keys)
		_, err := s.sender.Sender().Put(ctx, runtime.Put{Peer: peerOf(s.receiver), Request: request, Keys: keys, Pages: pages,
			Last: true, Timeout: 5 * time.Second})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.failed.Add(1)
			s.lastError.Store(&err)
			time.Sleep(time.Millisecond) // A refused put ends at once.
			continue
		}
		got, err := s.receiver.Receiver().Get(within(s.T), runtime.Get{Request: request, Keys: keys})
		if err != nil {
			s.Errorf("%s arrived, and its engine's get fails: %v", request, err)
			return
		}
		wantContent(s.T, got, keys, pageBytes)
		mustRelease(s.T, got)
		s.arrived.Add(1)
	}
}

// await waits until a count has grown by n.
func (s *stream) await(what string, count *atomic.Int64, n int64) {
	s.Helper()
	for ctx, from := within(s.T), count.Load(); count.Load() < from+n; {
		if ctx.Err() != nil {
			s.Fatalf("%s: %d chunks of %s arrived, %d failed", what, s.arrived.Load(), s.name, s.failed.Load())
		}
		time.Sleep(time.Millisecond)
	}
}

// While a prefill sends to two decodes, the policy drops one of them and takes it back, and all certificates are renewed:
// no byte is wrong, nothing to the other decode fails, and nothing reaches the dropped one until it is back.
func TestRevokedUnderLoad(t *testing.T) {
	f := newFleet(t, string(authority.FleetPolicy("fleet")))
	sc := f.secured(senderConfig(t, "tcp", effects.Addr{}), "prefill/1")
	sender := open(t, sc)
	defer mustClose(t, sender)
	allowed := &stream{T: t, sender: sender, receiver: open(t, f.secured(receiverConfig(t, "tcp", nil), "decode/1")), name: "allowed"}
	defer mustClose(t, allowed.receiver)
	revoked := &stream{T: t, sender: sender, receiver: open(t, f.secured(receiverConfig(t, "tcp", nil), "decode/2")), name: "revoked"}
	defer mustClose(t, revoked.receiver)
	ctx, stop := context.WithCancel(within(t))
	var streams sync.WaitGroup
	defer streams.Wait()
	defer stop()
	for _, s := range []*stream{allowed, revoked} {
		streams.Go(func() { s.run(ctx) })
	}
	allowed.await("at first", &allowed.arrived, 5)
	revoked.await("at first", &revoked.arrived, 5)

	t.Log("# the prefill's policy names decode 1 alone")
	policy := filepath.Join(f.folderOf("prefill/1"), authority.PolicyFile)
	narrow := strings.ReplaceAll(f.policy, "spiffe://fleet/decode/*", "spiffe://fleet/decode/1")
	if narrow == f.policy {
		t.Fatalf("the policy names no decode:\n%s", f.policy)
	}
	replaceFile(t, policy, narrow)
	sender.ReloadSecurity()
	revoked.await("revoked", &revoked.failed, 2)
	arrived := revoked.arrived.Load()
	revoked.await("still revoked", &revoked.failed, 2)
	if more := revoked.arrived.Load() - arrived; more > 0 {
		t.Errorf("%d chunks reached the decode after it was revoked", more)
	}
	if err := *revoked.lastError.Load(); runtime.CodeOf(err) == effects.OK {
		t.Errorf("the put to the revoked decode: %v", err)
	}

	t.Log("# all certificates are renewed, and then decode 2 is allowed again")
	for identity, n := range map[string]*runtime.Node{"prefill/1": sender, "decode/1": allowed.receiver, "decode/2": revoked.receiver} {
		if err := f.WriteFolder(f.folderOf(identity), "spiffe://fleet/"+identity, []byte(f.policy)); err != nil {
			t.Fatal(err)
		}
		n.ReloadSecurity()
	}
	revoked.await("allowed again", &revoked.arrived, 5)
	allowed.await("at last", &allowed.arrived, 5)
	if allowed.failed.Load() > 0 {
		t.Errorf("%d chunks to the decode that was always allowed failed: %v", allowed.failed.Load(), *allowed.lastError.Load())
	}
}

// replaceFile replaces a file at once, as programs that renew secrets do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A process whose certificate has ended gets no new connection, and works again when the certificate is renewed.
func TestEndedCertificate(t *testing.T) {
	var late atomic.Bool
	a, err := authority.New(time.Hour, func() time.Time {
		if late.Load() {
			return time.Now()
		}
		return time.Now().Add(3*time.Second - time.Hour) // The certificates end in three seconds.
	})
	if err != nil {
		t.Fatal(err)
	}
	ending := &fleet{t, a, string(authority.FleetPolicy("fleet")), map[string]string{}}
	r := open(t, ending.secured(receiverConfig(t, "tcp", nil), "decode/1"))
	defer mustClose(t, r)
	late.Store(true)
	put := func() error {
		s := open(t, ending.secured(senderConfig(t, "tcp", effects.Addr{}), "prefill/1"))
		defer mustClose(t, s)
		pages := mustReserve(t, s, 1)
		defer mustRelease(t, pages)
		name := time.Now().Format("150405.000000000")
		_, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: name, Keys: keysOf(name, 1), Pages: pages, Last: true,
			Timeout: time.Second})
		if err == nil {
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: name, Keys: keysOf(name, 1)})
			if err != nil {
				t.Fatal(err)
			}
			mustRelease(t, got)
		}
		return err
	}
	if err := put(); err != nil {
		t.Fatalf("before the end: %v", err)
	}
	for ctx := within(t); ; {
		err := put()
		if err != nil && runtime.CodeOf(err) != effects.Unreachable && runtime.CodeOf(err) != effects.PeerLost {
			t.Fatalf("a put after the end: %v", err)
		}
		if err != nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("new senders are served by a process whose certificate has ended")
		}
	}
	if err := ending.WriteFolder(ending.folderOf("decode/1"), "spiffe://fleet/decode/1", []byte(ending.policy)); err != nil {
		t.Fatal(err)
	}
	r.ReloadSecurity()
	for ctx := within(t); ; {
		err := put()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("a process with a renewed certificate is refused: %v", err)
		}
	}
}

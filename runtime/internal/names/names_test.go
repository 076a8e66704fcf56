package names_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/internal/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestAddressesAreTheirOwnNames(t *testing.T) {
	r := names.New(context.Background(), names.Config{Lookup: func(context.Context, string, string) ([]netip.Addr, error) {
		t.Error("looked up")
		return nil, nil
	}})
	for _, host := range []string{"10.0.0.1", "::1", "fe80::1%eth0"} {
		if got, err := r.Resolve(t.Context(), host, false); err != nil || got[0].String() != host {
			t.Errorf("%s: %v, %v", host, got, err)
		}
	}
}

func TestAddressesAreCached(t *testing.T) {
	var asked atomic.Int32
	r := names.New(context.Background(),
		names.Config{TTL: time.Hour, FailureTTL: time.Hour, Lookup: func(_ context.Context, network, host string) ([]netip.Addr,
			error) {
			asked.Add(1)
			if host == "none" {
				return nil, errors.New("no such host")
			}
			return addrs("10.0.0.1", "fd00::1"), nil
		}})
	for range 3 {
		if got, err := r.Resolve(t.Context(), "node", true); err != nil || got[0] != addrs("fd00::1")[0] {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := r.Resolve(t.Context(), "none", true); err == nil {
			t.Error("found")
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d lookups", n)
	}
	r.Forget("node")
	_, _ = r.Resolve(t.Context(), "node", true)
	if n := asked.Load(); n != 3 {
		t.Errorf("%d lookups after one was forgotten", n)
	}
}

// Lookups of silent names end in time, however many there are, and the number of cached names is bounded.
func TestManySilentNames(t *testing.T) {
	var running, most atomic.Int32
	r := names.New(context.Background(), names.Config{Timeout: 20 * time.Millisecond, MaxLookups: 3, MaxNames: 10,
		Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	ended := make(chan error)
	for i := range 50 {
		go func() {
			_, err := r.Resolve(context.Background(), fmt.Sprint("silent-", i), false)
			ended <- err
		}()
	}
	for range 50 {
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	if most.Load() > 3 {
		t.Errorf("%d lookups at a time", most.Load())
	}
}

// localhost is not looked up.
func TestLocalhost(t *testing.T) {
	r := names.New(t.Context(), names.Config{Lookup: func(context.Context, string, string) ([]netip.Addr, error) {
		t.Error("somebody was asked")
		return nil, nil
	}})
	defer r.Wait()
	for _, c := range []struct {
		ipv6 bool
		want string
	}{{false, "[127.0.0.1]"}, {true, "[::1 127.0.0.1]"}} {
		if got, err := r.Resolve(t.Context(), "localhost", c.ipv6); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("with IPv6 %t: %v, %v", c.ipv6, got, err)
		}
	}
}

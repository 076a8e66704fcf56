//go:build cgo && linux

package hostile_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// honest is a sender that goes on whatever happens, and what became of its puts.
type honest struct {
	t             testing.TB
	v             *victim
	n             *runtime.Node
	name          string // of its requests
	count         int
	failed, wrong int
	why           string
	last          answer
}

func newHonest(t testing.TB, v *victim, name string) *honest {
	t.Helper()
	n, err := open("sender", "pd_skip_proxy_notification: true\n", zmq.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &honest{t: t, v: v, n: n, name: name}
}

// puts returns how long each took. It ends after so many, but not before enough says so.
func (h *honest) puts(rounds int, enough func() bool) (times []time.Duration) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(times) < rounds || enough != nil && !enough() {
		h.count++
		request := fmt.Sprint(h.name, h.count)
		key := fmt.Sprintf("%s@1@0@1%x@bfloat16", request, h.count)
		pages, err := h.n.Sender().Reserve(ctx, 1)
		if err != nil {
			h.t.Fatal(err)
		}
		b, err := pages.Host(0)
		if err != nil {
			h.t.Fatal(err)
		}
		copy(b, content(key, len(b)))
		began := time.Now()
		_, err = h.n.Sender().Put(ctx, runtime.Put{Peer: h.v.peer, Request: request, Keys: []string{key}, Pages: pages, Last: true})
		times = append(times, time.Since(began))
		if err != nil {
			h.failed++
			h.why = err.Error()
		} else if h.last = h.v.says(key); h.last.Hits != 1 {
			h.failed++
			h.why = "it did not arrive: " + h.last.Problems
		}
		h.wrong += h.last.Wrong
		if err := pages.Release(ctx); err != nil {
			h.t.Fatal(err)
		}
	}
	return times
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

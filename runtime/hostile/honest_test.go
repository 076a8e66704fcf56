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

// honest is a sender that goes on whatever happens, at a steady rate, and what became of its puts.
type honest struct {
	t             testing.TB
	to            *victim
	n             *runtime.Node
	name          string // of its requests
	count         int
	failed, wrong int
	why           string
	last          answer
}

func newHonest(t testing.TB, to *victim, name string) *honest {
	t.Helper()
	n, err := setup{Role: "sender", Channel: to.setup.Channel}.open(zmq.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &honest{t: t, to: to, n: n, name: name}
}

// puts returns how long each took. It ends after so many, but not before enough says so. Each begins when its turn has
// come, or, where that before it took longer, at once.
func (h *honest) puts(rounds int, enough func() bool) (times []time.Duration) {
	h.t.Helper()
	rate := *putsRate
	if !*inFull {
		rate *= 10 // A short run is to be over.
	}
	turn := time.NewTicker(time.Second / time.Duration(rate))
	defer turn.Stop()
	for len(times) < rounds || enough != nil && !enough() {
		<-turn.C
		h.count++
		key := fmt.Sprintf("%s%d@1@0@1%x@bfloat16", h.name, h.count, h.count)
		began := time.Now()
		err := putOne(h.n, h.to.peer, key, time.Minute)
		times = append(times, time.Since(began))
		if err != nil {
			h.failed++
			h.why = err.Error()
		} else if h.last = h.to.says(key); h.last.Hits != 1 {
			h.failed++
			h.why = "it did not arrive: " + h.last.Problems
		}
		h.wrong += h.last.Wrong
	}
	return times
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

package shm

import (
	"context"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// A small push is stored by the goroutine that reads its frame: it neither waits for a copy thread nor wakes one.
func TestSmallPushesNeedNoCopier(t *testing.T) {
	const size, pages = 64 << 10, 17
	begun, open := make(chan struct{}, 1), make(chan struct{})
	slow := func(dst, src []byte) {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-open
		plane.Move(dst, src)
	}
	a := planetest.OpenNode(t, Open, 1, pages+1, size)
	b := planetest.OpenNode(t, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Copiers: 1, NonTemporalBytes: size + 1}.openWith(ctx, env, plane.Move, slow)
	}, 2, pages+1, size)
	link := a.Import(t, b.Inc, b.Plane.Blob())
	push := func(first, count int) effects.Corr {
		from := a.PublishPages(first, count, size)
		grant, into := b.GrantWrite(a.Inc, first, count, size)
		return a.StartPush(planetest.Push{To: b.Inc, Link: link, Grant: grant, From: from, Into: into,
			Buffer: b.Pool.Buffer().ID})
	}
	large := push(0, pages)
	<-begun // The only copy thread is busy with it.
	if done := a.AwaitDone(t, push(pages, 1)); done.Code != effects.OK {
		t.Errorf("the small one ended as %s", done.Code)
	}
	close(open)
	if done := a.AwaitDone(t, large); done.Code != effects.OK {
		t.Errorf("the large one ended as %s", done.Code)
	}
}

// A steppedSink sink counts the goroutines that hold it.
type steppedSink struct {
	plane.Sink
	mu          sync.Mutex
	held, holds int
	unheld      int // ends of transfers that were posted while nobody held it
}

func (s *steppedSink) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	s.holds++
}

func (s *steppedSink) Step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
}

func (s *steppedSink) Post(ev effects.Event) {
	s.mu.Lock()
	if _, ok := ev.(*effects.TransferDone); ok && s.held == 0 {
		s.unheld++
	}
	s.mu.Unlock()
	s.Sink.Post(ev)
}

// The goroutine that stored a small push makes the target's machine process its landing, and the goroutine that reads
// the done message makes the initiator's machine process that.
func TestSmallPushesStepTheMachines(t *testing.T) {
	var sinks [2]steppedSink
	open := func(i int) plane.Opener {
		return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			sinks[i].Sink, env.Sink = env.Sink, &sinks[i]
			return Open(ctx, env)
		}
	}
	a, b := planetest.OpenNode(t, open(0), 1, 1, 4096), planetest.OpenNode(t, open(1), 2, 1, 4096)
	link := a.Import(t, b.Inc, b.Plane.Blob())
	from := a.PublishPages(0, 1, 4096)
	grant, into := b.GrantWrite(a.Inc, 0, 1, 4096)
	corr := a.StartPush(planetest.Push{To: b.Inc, Link: link, Grant: grant, From: from, Into: into, Buffer: b.Pool.Buffer().ID})
	if done := a.AwaitDone(t, corr); done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	for i := range sinks {
		s := &sinks[i]
		s.mu.Lock()
		if s.holds == 0 || s.unheld > 0 {
			t.Errorf("end %d: held %d times, and %d ends of transfers were posted without", i, s.holds, s.unheld)
		}
		s.mu.Unlock()
	}
}

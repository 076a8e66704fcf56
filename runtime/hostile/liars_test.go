//go:build cgo && linux

package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func liesOf(channel string) []liar.Lie {
	if channel == tcp.Name {
		return liar.TCPLies()
	}
	return liar.SHMLies()
}

// A lied plane has a liar before each plane that it links to.
type lied struct {
	plane.Plane
	lie liar.Lie

	mu    sync.Mutex
	liars []*liar.Liar
}

// Import implements plane.Plane.
func (p *lied) Import(e *effects.Import) {
	l, blob, err := liar.New(e.Blob, p.lie, nil)
	if err == nil {
		p.mu.Lock()
		p.liars = append(p.liars, l)
		p.mu.Unlock()
		other := *e
		other.Blob, e = blob, &other
	}
	p.Plane.Import(e)
}

// lying has a sender put to the victim by way of a liar, one after the other for each lie that there is.
func lying(x *attack) error {
	all := liesOf(x.v.setup.Channel)
	for round := 0; x.more(); round++ {
		lie := all[round*7%len(all)] // Of each step some, in a short run as well.
		if err := x.lieOnce(lie, fmt.Sprint("lie", round)); err != nil {
			return fmt.Errorf("%s %s: %w", lie.Step, lie.Way, err)
		}
		x.done.Add(1)
	}
	return nil
}

func (x *attack) lieOnce(lie liar.Lie, name string) (err error) {
	p := &lied{lie: lie}
	opener := func(open plane.Opener) plane.Opener {
		return func(ctx context.Context, env plane.Env) (_ plane.Plane, err error) {
			env.Bounds.HandshakeTimeout, env.Bounds.StallTimeout = 100*time.Millisecond, 100*time.Millisecond
			p.Plane, err = open(ctx, env)
			return p, err
		}
	}
	with := runtime.WithPlane(shm.Name, opener(shm.Open))
	if x.v.setup.Channel == tcp.Name {
		with = runtime.WithPlane(tcp.Name, opener(tcp.Open))
	}
	n, err := setup{Role: "sender", Channel: x.v.setup.Channel}.open(zmq.Config{}, io.Discard, with)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.Close(context.Background()))
		for _, l := range p.liars {
			l.Close()
		}
	}()
	b := batch{x.v.peer, name, 1}
	for i := range b.Count {
		_ = putOne(n, b.To, b.key(i), 150*time.Millisecond) // How it ends is up to the lie.
		x.v.says(getNow + b.key(i))
	}
	return nil
}

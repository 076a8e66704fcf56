//go:build cgo && linux

package gateway

import (
	"context"
	"net/netip"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/runtime/control"
)

// Control opens the node's control transport, with the gateway before it.
func (g *Gateway) Control(inner control.Opener) control.Opener {
	return func(env control.Env) (control.Transport, error) {
		t, err := inner(env)
		if err != nil {
			return nil, err
		}
		return &border{Transport: t, g: g}, nil
	}
}

// A border sends what is for plain engines to the machine, and all else on.
type border struct {
	control.Transport
	g *Gateway
}

func (b *border) Open(e *effects.Open) {
	if !machine.IsPlain(e.Addr) {
		b.Transport.Open(e)
		return
	}
	x := *e
	b.g.inbox.Push(func(effects.Time) {
		if b.g.over {
			b.g.out.Events = append(b.g.out.Events, &effects.Opened{Corr: x.Corr, Code: effects.Closed})
			return
		}
		b.g.m.Open(&x, &b.g.out)
	})
}

func (b *border) Close(c effects.Conn) {
	if !machine.Ours(c) {
		b.Transport.Close(c)
		return
	}
	b.g.inbox.Push(func(effects.Time) { b.g.m.Close(c, &b.g.out) })
}

func (b *border) Send(e *effects.Send) {
	if !machine.Ours(e.Conn) {
		b.Transport.Send(e)
		return
	}
	x := *e
	x.Body = slices.Clone(e.Body)
	b.g.inbox.Push(func(now effects.Time) {
		if b.g.over {
			b.g.out.Events = append(b.g.out.Events, &effects.Unanswered{Corr: x.Corr, Code: effects.Closed})
			return
		}
		b.g.m.Send(now, &x, &b.g.out)
	})
}

func (b *border) Post(e *effects.Post) {
	if !machine.Ours(e.Conn) {
		b.Transport.Post(e)
		return
	}
	corr := e.Corr
	b.g.inbox.Push(func(effects.Time) {
		b.g.out.Events = append(b.g.out.Events, &effects.SendDone{Corr: corr, Code: effects.Unsupported})
	})
}

func (b *border) Reply(e *effects.Reply) {
	if !machine.Ours(e.Request) {
		b.Transport.Reply(e)
		return
	}
	x := effects.Reply{Request: e.Request, Body: slices.Clone(e.Body)}
	b.g.inbox.Push(func(now effects.Time) { b.g.m.Reply(now, &x, &b.g.out) })
}

func (b *border) Caller(c effects.Conn) netip.Addr {
	if machine.Ours(c) {
		return netip.Addr{}
	}
	return b.Transport.Caller(c)
}

// Shutdown is the inner one's: what is with engines ends when the plane closes, which follows.
func (b *border) Shutdown(ctx context.Context) error { return b.Transport.Shutdown(ctx) }

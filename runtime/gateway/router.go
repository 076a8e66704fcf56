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

// WrapControl returns an opener of the node's control transport: the transport that inner opens, wrapped by the
// gateway.
func (g *Gateway) WrapControl(inner control.Opener) control.Opener {
	return func(env control.Env) (control.Transport, error) {
		t, err := inner(env)
		if err != nil {
			return nil, err
		}
		return &router{Transport: t, g: g}, nil
	}
}

// A router is a control transport that sends messages for plain engines to the machine, and every further message to
// the wrapped transport.
type router struct {
	control.Transport
	g *Gateway
}

func (b *router) Open(e *effects.Open) {
	if !machine.IsPlain(e.Addr) {
		b.Transport.Open(e)
		return
	}
	x := *e
	b.g.inbox.Push(func(effects.Time) {
		if b.g.closing {
			b.g.out.Events = append(b.g.out.Events, &effects.Opened{Corr: x.Corr, Code: effects.Closed})
			return
		}
		b.g.m.HandleOpen(&x, &b.g.out)
	})
}

func (b *router) Close(c effects.Conn) {
	if !machine.IsGatewayID(c) {
		b.Transport.Close(c)
		return
	}
	b.g.inbox.Push(func(effects.Time) { b.g.m.HandleClose(c, &b.g.out) })
}

func (b *router) Send(e *effects.Send) {
	if !machine.IsGatewayID(e.Conn) {
		b.Transport.Send(e)
		return
	}
	x := *e
	x.Body = slices.Clone(e.Body)
	b.g.inbox.Push(func(now effects.Time) {
		if b.g.closing {
			b.g.out.Events = append(b.g.out.Events, &effects.Unanswered{Corr: x.Corr, Code: effects.Closed})
			return
		}
		b.g.m.HandleSend(now, &x, &b.g.out)
	})
}

func (b *router) Post(e *effects.Post) {
	if !machine.IsGatewayID(e.Conn) {
		b.Transport.Post(e)
		return
	}
	corr := e.Corr
	b.g.inbox.Push(func(effects.Time) {
		b.g.out.Events = append(b.g.out.Events, &effects.SendDone{Corr: corr, Code: effects.Unsupported})
	})
}

func (b *router) Reply(e *effects.Reply) {
	if !machine.IsGatewayID(e.Request) {
		b.Transport.Reply(e)
		return
	}
	x := effects.Reply{Request: e.Request, Body: slices.Clone(e.Body)}
	b.g.inbox.Push(func(now effects.Time) { b.g.m.HandleReply(now, &x, &b.g.out) })
}

func (b *router) Caller(c effects.Conn) netip.Addr {
	if machine.IsGatewayID(c) {
		return netip.Addr{}
	}
	return b.Transport.Caller(c)
}

// Shutdown ends the wrapped transport. Exchanges with engines end when the plane closes, which follows.
func (b *router) Shutdown(ctx context.Context) error { return b.Transport.Shutdown(ctx) }

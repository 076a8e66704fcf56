package controltest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// Endpoint holds a transport under test together with the events that the transport posted.
type Endpoint struct {
	*Recorder
	control.Transport
	t        testing.TB
	lastCorr effects.Corr
}

// Post passes a message to the transport. The method hides Recorder.Post, which only the transport calls.
func (e *Endpoint) Post(p *effects.Post) { e.Transport.Post(p) }

// Start makes a transport that is shut down at the end of the test.
func Start(t testing.TB, open control.Opener, servers ...control.Server) *Endpoint {
	t.Helper()
	recorder := NewRecorder()
	transport, err := open(control.Env{Servers: servers, Sink: recorder})
	if err != nil {
		t.Fatalf("open transport: %v", err)
	}
	e := &Endpoint{Recorder: recorder, Transport: transport, t: t}
	t.Cleanup(e.Stop)
	return e
}

// Stop shuts the transport down and fails the test if that does not succeed.
func (e *Endpoint) Stop() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		e.t.Errorf("shutdown: %v", err)
	}
}

func (e *Endpoint) nextCorr() effects.Corr { e.lastCorr++; return e.lastCorr }

// Dial opens a Conn and fails the test if the Conn is not usable.
func (e *Endpoint) Dial(channel effects.Channel, addr effects.Addr) effects.Conn {
	e.t.Helper()
	opened := e.TryDial(channel, addr)
	if opened.Code != effects.OK || opened.Conn == 0 {
		e.t.Fatalf("open %s to %v: %s, conn %d", channel, addr, opened.Code, opened.Conn)
	}
	return opened.Conn
}

// DialMany opens a Conn with a window and fails the test if the Conn is not usable.
func (e *Endpoint) DialMany(channel effects.Channel, window uint16, addr effects.Addr) effects.Conn {
	e.t.Helper()
	opened := e.tryDial(&effects.Open{Channel: channel, Window: window, Addr: addr})
	if opened.Code != effects.OK || opened.Conn == 0 {
		e.t.Fatalf("open %s with a window of %d to %v: %s, conn %d", channel, window, addr, opened.Code, opened.Conn)
	}
	return opened.Conn
}

// TryDial opens a Conn and returns the completion.
func (e *Endpoint) TryDial(channel effects.Channel, addr effects.Addr) *effects.Opened {
	e.t.Helper()
	return e.tryDial(&effects.Open{Channel: channel, Addr: addr})
}

func (e *Endpoint) tryDial(open *effects.Open) *effects.Opened {
	e.t.Helper()
	corr := e.nextCorr()
	open.Corr = corr
	e.Open(open)
	return Await(e.t, e.Recorder, func(ev *effects.Opened) bool { return ev.Corr == corr })
}

// SendRequest sends body and then overwrites the slice, as a machine may once the call has returned.
func (e *Endpoint) SendRequest(conn effects.Conn, body string) effects.Corr {
	corr := e.nextCorr()
	span := []byte(body)
	e.Send(&effects.Send{Corr: corr, Conn: conn, Body: span})
	overwrite(span)
	return corr
}

// PostMessage posts body one-way and returns the code of the completion.
func (e *Endpoint) PostMessage(conn effects.Conn, body string) effects.Code {
	e.t.Helper()
	corr := e.nextCorr()
	span := []byte(body)
	e.Transport.Post(&effects.Post{Corr: corr, Conn: conn, Body: span})
	overwrite(span)
	return Await(e.t, e.Recorder, func(ev *effects.SendDone) bool { return ev.Corr == corr }).Code
}

// SendReply replies to a request.
func (e *Endpoint) SendReply(request effects.Request, body string) {
	span := []byte(body)
	e.Reply(&effects.Reply{Request: request, Body: span})
	overwrite(span)
}

// AwaitReceived waits for the message with this body.
func (e *Endpoint) AwaitReceived(body string) *effects.Received {
	e.t.Helper()
	return Await(e.t, e.Recorder, func(ev *effects.Received) bool { return string(ev.Body) == body })
}

// WantReply waits for the reply to corr and compares the body.
func (e *Endpoint) WantReply(corr effects.Corr, body string) {
	e.t.Helper()
	got := Await(e.t, e.Recorder, func(ev *effects.Replied) bool { return ev.Corr == corr })
	if string(got.Body) != body {
		e.t.Fatalf("reply to %d: %q, want %q", corr, got.Body, body)
	}
}

// WantUnanswered waits for the failure of corr and compares the code.
func (e *Endpoint) WantUnanswered(corr effects.Corr, code effects.Code) {
	e.t.Helper()
	got := Await(e.t, e.Recorder, func(ev *effects.Unanswered) bool { return ev.Corr == corr })
	if got.Code != code {
		e.t.Fatalf("send %d ended as %s, want %s", corr, got.Code, code)
	}
}

// overwrite overwrites bytes that the transport must have copied.
func overwrite(span []byte) {
	for i := range span {
		span[i] = 0xDB
	}
}

// PostedBeforeShutdown checks that messages posted before a shutdown arrive. The transports that open makes must have a
// long Linger, because how long that takes depends on the load of the machine.
func PostedBeforeShutdown(t *testing.T, open control.Opener, host string) {
	for _, channel := range []effects.Channel{effects.ChannelProxy, effects.ChannelDone} {
		server := Start(t, open, control.Server{Channel: channel, Addr: effects.Addr{Host: host}})
		client := Start(t, open)
		conn := client.Dial(channel, server.Servers()[0].Addr)
		client.PostMessage(conn, "first")
		server.AwaitReceived("first") // now the connection is up
		client.PostMessage(conn, "last words")
		client.Stop()
		server.AwaitReceived("last words")
	}
}

// Run holds the transports that open makes to the contract. host is an address with free ports that the transports may
// bind.
func Run(t *testing.T, open control.Opener, host string) {
	free := effects.Addr{Host: host}
	servers := []control.Server{
		{Channel: effects.ChannelInit, Addr: free},
		{Channel: effects.ChannelAlloc, Addr: free},
		{Channel: effects.ChannelProxy, Addr: free},
		{Channel: effects.ChannelDone, Addr: free},
	}
	startPair := func(t *testing.T) (client, server *Endpoint, init, alloc, proxy effects.Addr) {
		server = Start(t, open, servers...)
		bound := server.Servers()
		return Start(t, open), server, bound[0].Addr, bound[1].Addr, bound[2].Addr
	}

	t.Run("scenarios", func(t *testing.T) { runScenarios(t, open, host) })

	t.Run("bound ports are told", func(t *testing.T) {
		_, server, _, _, _ := startPair(t)
		for i, got := range server.Servers() {
			if got.Addr.Port == 0 || got.Channel != servers[i].Channel || got.Addr.Host != host {
				t.Errorf("server %d: asked for %v, got %v", i, servers[i], got)
			}
		}
	})

	t.Run("a request is answered", func(t *testing.T) {
		client, server, init, alloc, _ := startPair(t)
		for channel, addr := range map[effects.Channel]effects.Addr{
			effects.ChannelInit: init, effects.ChannelAlloc: alloc,
		} {
			conn := client.Dial(channel, addr)
			corr := client.SendRequest(conn, "ping "+channel.String())
			got := server.AwaitReceived("ping " + channel.String())
			if got.Channel != channel || got.Request == 0 || got.Conn == 0 {
				t.Fatalf("received %+v on %s", got, channel)
			}
			server.SendReply(got.Request, "pong")
			client.WantReply(corr, "pong")
		}
	})

	t.Run("empty bodies are bodies", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		conn := client.Dial(effects.ChannelInit, init)
		corr := client.SendRequest(conn, "")
		server.SendReply(server.AwaitReceived("").Request, "")
		client.WantReply(corr, "")
	})

	t.Run("a client connection keeps its Conn", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		one, two := client.Dial(effects.ChannelInit, init), client.Dial(effects.ChannelInit, init)
		seen := map[effects.Conn]effects.Conn{}
		for round := range 3 {
			for _, conn := range []effects.Conn{one, two} {
				body := fmt.Sprint(conn, round)
				corr := client.SendRequest(conn, body)
				got := server.AwaitReceived(body)
				if before, found := seen[conn]; found && before != got.Conn {
					t.Fatalf("client conn %d was %d at the server and is now %d", conn, before, got.Conn)
				}
				seen[conn] = got.Conn
				server.SendReply(got.Request, body)
				client.WantReply(corr, body)
			}
		}
		if seen[one] == seen[two] {
			t.Fatalf("two connections share conn %d at the server", seen[one])
		}
	})

	t.Run("a message is told one way", func(t *testing.T) {
		client, server, _, _, _ := startPair(t)
		for _, s := range server.Servers()[2:] {
			conn := client.Dial(s.Channel, s.Addr)
			word := "told on " + s.Channel.String()
			if code := client.PostMessage(conn, word); code != effects.OK {
				t.Fatalf("%s: post: %s", s.Channel, code)
			}
			if got := server.AwaitReceived(word); got.Request != 0 || got.Channel != s.Channel || got.Conn == 0 {
				t.Fatalf("%s: received %+v", s.Channel, got)
			}
		}
	})

	t.Run("a request is answered once", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		conn := client.Dial(effects.ChannelInit, init)
		corr := client.SendRequest(conn, "one")
		request := server.AwaitReceived("one").Request
		server.SendReply(request, "first")
		server.SendReply(request, "second")
		server.SendReply(request+1000, "to nobody")
		client.WantReply(corr, "first")
		corr = client.SendRequest(conn, "two")
		server.SendReply(server.AwaitReceived("two").Request, "third")
		client.WantReply(corr, "third")
		if n := server.Stats().RepliesDropped; n != 2 {
			t.Errorf("%d replies dropped, want 2", n)
		}
	})

	t.Run("a late reply is never delivered", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		old := client.Dial(effects.ChannelInit, init)
		late := client.SendRequest(old, "slow")
		request := server.AwaitReceived("slow").Request
		client.Close(old)
		client.WantUnanswered(late, effects.Closed)
		server.SendReply(request, "too late")

		conn := client.Dial(effects.ChannelInit, init)
		if conn == old {
			t.Fatalf("conn %d was given twice", conn)
		}
		corr := client.SendRequest(conn, "fast")
		server.SendReply(server.AwaitReceived("fast").Request, "in time")
		client.WantReply(corr, "in time")
		client.Stop()
		if n := Count(client.Recorder, func(ev *effects.Replied) bool { return ev.Corr == late }); n != 0 {
			t.Errorf("the late reply was delivered")
		}
	})

	t.Run("lockstep and kind of a Conn are held", func(t *testing.T) {
		client, server, init, _, proxy := startPair(t)
		asks, tells := client.Dial(effects.ChannelInit, init), client.Dial(effects.ChannelProxy, proxy)
		first := client.SendRequest(asks, "first")
		client.WantUnanswered(client.SendRequest(asks, "second"), effects.Invalid)
		client.WantUnanswered(client.SendRequest(tells, "question"), effects.Invalid)
		if code := client.PostMessage(asks, "statement"); code != effects.Invalid {
			t.Errorf("post on an asking conn: %s", code)
		}
		server.SendReply(server.AwaitReceived("first").Request, "still answered")
		client.WantReply(first, "still answered")
	})

	t.Run("a window is held", func(t *testing.T) {
		client, server, init, alloc, proxy := startPair(t)
		conn := client.DialMany(effects.ChannelAlloc, 2, alloc)
		first, second := client.SendRequest(conn, "first"), client.SendRequest(conn, "second")
		client.WantUnanswered(client.SendRequest(conn, "third"), effects.Invalid)
		server.SendReply(server.AwaitReceived("second").Request, "to the second")
		client.WantReply(second, "to the second")
		fourth := client.SendRequest(conn, "fourth")
		client.WantUnanswered(client.SendRequest(conn, "fifth"), effects.Invalid)
		server.SendReply(server.AwaitReceived("fourth").Request, "to the fourth")
		server.SendReply(server.AwaitReceived("first").Request, "to the first")
		client.WantReply(fourth, "to the fourth")
		client.WantReply(first, "to the first")
		for channel, at := range map[effects.Channel]effects.Addr{effects.ChannelInit: init, effects.ChannelProxy: proxy} {
			opened := client.tryDial(&effects.Open{Channel: channel, Window: 2, Addr: at})
			if opened.Code != effects.Invalid || opened.Conn != 0 {
				t.Errorf("a window on %s: %+v", channel, opened)
			}
		}
	})

	t.Run("an unknown Conn is closed", func(t *testing.T) {
		client, _, init, _, _ := startPair(t)
		conn := client.Dial(effects.ChannelInit, init)
		client.Close(conn)
		client.Close(conn)
		client.Close(conn + 1000)
		client.WantUnanswered(client.SendRequest(conn, "hello"), effects.Closed)
		if code := client.PostMessage(conn+1000, "hello"); code != effects.Closed {
			t.Errorf("post on an unknown conn: %s", code)
		}
	})

	t.Run("an address that is none is invalid", func(t *testing.T) {
		client, _, _, _, _ := startPair(t)
		for _, addr := range []effects.Addr{
			{Host: "", Port: 1}, {Host: host, Port: 0}, {Host: "a b", Port: 1}, {Host: "127.0.0.1;" + host, Port: 1},
			{Host: "*", Port: 1}, {Host: "tcp://" + host, Port: 1}, {Host: "localhost:80", Port: 1},
		} {
			if got := client.TryDial(effects.ChannelInit, addr); got.Code != effects.Invalid || got.Conn != 0 {
				t.Errorf("open to %+v: %+v", addr, got)
			}
		}
		if got := client.TryDial(effects.ChannelOther-1, effects.Addr{Host: host, Port: 1}); got.Code != effects.Invalid {
			t.Errorf("open of an unknown channel: %s", got.Code)
		}
	})

	t.Run("large bodies arrive whole", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		conn := client.Dial(effects.ChannelInit, init)
		large := string(bytes.Repeat([]byte("kv"), 2<<20))
		corr := client.SendRequest(conn, large)
		server.SendReply(server.AwaitReceived(large).Request, large)
		client.WantReply(corr, large)
	})

	t.Run("two hundred clients at once", func(t *testing.T) {
		client, server, init, _, _ := startPair(t)
		const many = 200
		conns, corrs := make([]effects.Conn, many), make([]effects.Corr, many)
		for i := range conns {
			conns[i] = client.Dial(effects.ChannelInit, init)
		}
		for i, conn := range conns {
			corrs[i] = client.SendRequest(conn, fmt.Sprint("question ", i))
		}
		for i := range conns {
			server.SendReply(server.AwaitReceived(fmt.Sprint("question ", i)).Request, fmt.Sprint("answer ", i))
		}
		for i, corr := range corrs {
			client.WantReply(corr, fmt.Sprint("answer ", i))
		}
	})

	t.Run("shutdown completes everything once", func(t *testing.T) {
		client, server, init, alloc, proxy := startPair(t)
		asks := client.Dial(effects.ChannelInit, init)
		client.SendRequest(asks, "never answered")
		server.AwaitReceived("never answered")
		// These race with Shutdown on purpose; each completes, whichever is first.
		for range 50 {
			client.Open(&effects.Open{Corr: client.nextCorr(), Channel: effects.ChannelAlloc, Addr: alloc})
			client.Open(&effects.Open{Corr: client.nextCorr(), Channel: effects.ChannelProxy, Addr: proxy})
			client.SendRequest(asks, "again")
			client.Transport.Post(&effects.Post{Corr: client.nextCorr(), Conn: asks, Body: []byte("x")})
		}
		client.Stop()
		client.WantUnanswered(client.SendRequest(asks, "after the end"), effects.Closed)
		if code := client.PostMessage(asks, "after the end"); code != effects.Closed {
			t.Errorf("post after the end: %s", code)
		}
		if got := client.TryDial(effects.ChannelInit, init); got.Code != effects.Closed {
			t.Errorf("open after the end: %s", got.Code)
		}
		client.Close(asks)
		client.SendReply(1, "after the end")
		client.Stop()

		ends := map[effects.Corr]int{}
		for _, ev := range client.Events() {
			switch ev := ev.(type) {
			case *effects.Opened:
				ends[ev.Corr]++
			case *effects.Unanswered:
				ends[ev.Corr]++
			case *effects.Replied:
				ends[ev.Corr]++
			case *effects.SendDone:
				ends[ev.Corr]++
			}
		}
		for corr := effects.Corr(1); corr <= client.lastCorr; corr++ {
			if ends[corr] != 1 {
				t.Errorf("corr %d ended %d times", corr, ends[corr])
			}
		}
	})
}

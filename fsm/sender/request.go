package sender

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A request is what the proxy waits for: all batches with one request id.
//
//   - open: batches may come
//   - queued: the last batch was seen and none is open; the proxy is to be told
//   - told: remembered, so that it is told at most once
type request struct {
	id      []byte
	hash    uint64
	state   requestState
	last    bool
	puts    uint32
	missing uint32
	tries   uint32
	timer   kernel.TimerID `snap:"set"`
}

type requestState uint8

const (
	requestOpen requestState = iota
	requestQueued
	requestTold
)

// tellsMax bounds the tries to hand over one notification.
const tellsMax = 10

// proxy is the one connection to the proxy.
type proxy struct {
	queue   table.List
	conn    effects.Conn
	opening bool
	fails   uint32 // connections in a row that could not be opened
	telling table.Handle
	timer   kernel.TimerID `snap:"set"`
}

// join counts a put into its request.
func (s *Sender) join(v *env.Env, c *Put) (table.Handle, effects.Code, *effects.Why) {
	if len(c.Request) == 0 {
		return 0, effects.OK, nil
	}
	hash := table.Hash(s.seed, c.Request)
	h := table.Handle(0)
	for p := s.byRequest.Seek(hash); p.Found(); p = s.byRequest.Next(p) {
		if bytes.Equal(s.requests.Get(p.Handle()).id, c.Request) {
			h = p.Handle()
		}
	}
	if h == 0 {
		if s.requests.Full() && s.told.Len() > 0 {
			s.dropTimer(v, s.told.Front())
			s.forget(s.told.Front())
		}
		var r *request
		if h, r = s.requests.Add(); r == nil {
			v.Out.Mark(MarkRequestsFull)
			return 0, effects.TooMany, &effects.Why{
				Field: "tables.commands", Ours: "enough for " + number(s.cfg.RequestsMax) + " requests, and as many are open",
				Remedy: "retry when the last batch of one has ended, or raise tables.commands",
			}
		}
		*r = request{id: append(r.id[:0], c.Request...), hash: hash}
		s.byRequest.Add(hash, h)
	}
	r := s.requests.Get(h)
	if r.last {
		v.Out.Mark(MarkRequestEnded)
		return 0, effects.Ended, &effects.Why{
			Field: "Request", Theirs: effects.Words(c.Request), Ours: "one that had no last batch",
		}
	}
	r.last = c.Last
	r.puts++
	v.Timers.Stop(&r.timer)
	return h, effects.OK, nil
}

// leave counts a put out of its request.
func (s *Sender) leave(v *env.Env, p *put, code effects.Code) {
	r := s.requests.Get(p.request)
	if r == nil {
		return
	}
	r.puts--
	if code != effects.OK {
		r.missing += uint32(len(p.ends))
	}
	if r.puts > 0 {
		return
	}
	if !r.last {
		v.Timers.Set(&r.timer, v.Now.Add(s.cfg.RequestTTL), timerRef(timerRequest, p.request))
		return
	}
	if s.cfg.Proxy.Host == "" {
		s.becomeTold(v, p.request, r)
		return
	}
	r.state = requestQueued
	s.requests.PushBack(&s.proxy.queue, p.request)
	s.maybeTell(v)
}

func (s *Sender) becomeTold(v *env.Env, h table.Handle, r *request) {
	r.state = requestTold
	s.requests.PushBack(&s.told, h)
	v.Timers.Set(&r.timer, v.Now.Add(s.cfg.RequestTTL), timerRef(timerRequest, h))
}

func (s *Sender) dropTimer(v *env.Env, h table.Handle) { v.Timers.Stop(&s.requests.Get(h).timer) }

func (s *Sender) forget(h table.Handle) {
	r := s.requests.Get(h)
	if r.state == requestTold {
		s.requests.Unlink(&s.told, h)
	}
	s.byRequest.Remove(r.hash, h)
	s.requests.Remove(h)
}

// maybeTell hands over the next notification if the connection is free.
func (s *Sender) maybeTell(v *env.Env) {
	x := &s.proxy
	if x.queue.Len() == 0 || x.telling != 0 || x.timer != 0 || x.opening {
		return
	}
	if x.conn == 0 {
		x.opening = true
		v.Out.Open(effects.Open{
			Corr:    v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kindOpenProxy}),
			Channel: effects.ChannelProxy, Addr: s.cfg.Proxy,
		})
		return
	}
	h := x.queue.Front()
	r := s.requests.Get(h)
	s.requests.Unlink(&x.queue, h)
	x.telling = h
	s.notif.RequestID = r.id
	s.notif.HasExt, s.notif.Failed, s.notif.Rank = true, r.missing, s.cfg.Rank
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kindTell, Subject: h}),
		Conn: x.conn, Body: v.Out.Cut(s.notif.Append(v.Out.Arena())),
	})
}

// OnProxyOpened handles the completion of the Open of the proxy's connection.
func (s *Sender) OnProxyOpened(v *env.Env, ev *effects.Opened) {
	s.proxy.opening = false
	if ev.Code == effects.OK {
		s.proxy.conn, s.proxy.fails = ev.Conn, 0
		s.maybeTell(v)
		return
	}
	s.proxy.fails++
	s.tellLater(v, s.proxy.fails)
}

// OnSendDone handles the completion of a notification.
func (s *Sender) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	x := &s.proxy
	r := s.requests.Get(ref.Subject)
	x.telling = 0
	r.tries++
	if code != effects.OK && r.tries < tellsMax {
		// Refused means not handed over: telling again is still at most once.
		v.Out.Mark(MarkTellAgain)
		s.requests.PushFront(&x.queue, ref.Subject)
		v.Out.Close(x.conn)
		x.conn = 0
		s.tellLater(v, r.tries)
		return
	}
	fact := effects.Observe{Fact: effects.FactProxyTold, Code: code, Count: r.missing}
	if code != effects.OK {
		fact.Why = &effects.Why{
			Addr: s.cfg.Proxy, Stage: effects.StageProxy, Field: "Request", Ours: effects.Words(r.id), Theirs: "not told",
		}
	}
	v.Out.Observe(fact)
	s.becomeTold(v, ref.Subject, r)
	s.maybeTell(v)
}

func (s *Sender) tellLater(v *env.Env, tries uint32) {
	delay := min(s.cfg.BackoffMin<<min(tries-1, 20), s.cfg.BackoffMax)
	v.Timers.Set(&s.proxy.timer, v.Now.Add(delay), timerRef(timerProxy, 0))
}

// OnConnLost handles the loss of the proxy's connection.
func (s *Sender) OnConnLost(v *env.Env, conn effects.Conn) {
	if s.proxy.conn == conn && s.proxy.telling == 0 {
		v.Out.Close(conn)
		s.proxy.conn = 0
		s.maybeTell(v)
	}
}

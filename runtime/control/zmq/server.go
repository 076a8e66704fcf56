package zmq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/netpoll"
)

// server takes what peers send on one channel.
type server struct {
	*transport
	channel effects.Channel
	asks    bool // its messages are questions
	tells   bool // when a connection ends that it posted messages of
}

const (
	// skipMessages is how many messages of the greatest length are read only to find the end of one that is too long.
	skipMessages = 4
	// unansweredMax is the most questions of one connection that may be unanswered. Beyond, nothing more of it is read.
	unansweredMax = 16
)

// route is the way back to who asked: a connection, and what goes in front of the answer.
type route struct {
	talk     *talk
	envelope [][]byte
}

// talk is one connection of a peer, in the hands of the goroutine that reads it.
type talk struct {
	*server
	*line
	guest  *door.Conn
	conn   effects.Conn
	origin effects.Origin
	posted bool          // a message of it
	slots  chan struct{} // holds one token for each unanswered question
}

func (s *server) serve(g *door.Conn) error {
	t := &talk{server: s, line: newLine(g.Conn, &s.config, s.writers), guest: g, conn: s.drawConn(),
		origin: zeromq.OriginOf(g.Address),
		slots:  make(chan struct{}, unansweredMax)}
	if at, err := netip.ParseAddrPort(g.RemoteAddr().String()); err == nil {
		s.callers.Store(t.conn, at.Addr().Unmap())
		defer s.callers.Delete(t.conn)
	}
	defer t.out.close()
	if s.asks {
		s.talks.Store(t, nil)
		defer s.talks.Delete(t)
	}
	defer t.lost()
	err := t.shake(serving[s.asks]) // The door's patience is the deadline.
	if err == nil {
		g.MarkKnown()
		err = t.listen()
	}
	return err
}

// post hands a message on.
func (t *talk) post(ev *effects.Received) {
	ev.Conn, ev.Origin, ev.Channel = t.conn, t.origin, t.channel
	t.posted = true
	t.sink.Post(ev)
}

// lost says that the connection has ended, if anybody has heard of it and wants to know.
func (t *talk) lost() {
	if t.tells && t.posted {
		t.sink.Post(&effects.ConnLost{Conn: t.conn})
	}
}

func (s *server) limits() zmtp.Limits {
	return zmtp.Limits{Frames: zeromq.MostOfMessage(s.channel), Bytes: s.config.MaxMessage, Skip: skipMessages * s.config.MaxMessage}
}

func (t *talk) listen() error {
	r := t.reader(t.limits(), t.purse, t.guest.Address)
	defer r.Release()
	for {
		r.Release()
		t.out.calm()
		m, err := r.Next()
		switch {
		case errors.Is(err, zmtp.ErrEndless):
			t.stats.malformed.Add(1)
			return fmt.Errorf("%w; the limit of a message is %d bytes and %d frames", err, t.config.MaxMessage,
				zeromq.MostOfMessage(t.channel))
		case err != nil:
			return err
		}
		if t.asks {
			t.asked(m)
		} else {
			t.told(m)
		}
	}
}

// asked hands on a question, with what comes before its body as the way back. The body of one that is no question is
// empty: that is no message of ours, so whoever answers it says so, and the asker does not wait for ever.
func (t *talk) asked(m zmtp.Message) {
	envelope, body, err := zeromq.Question(t.channel, m.Frames)
	if err = fault(m, t.limits(), err); err != nil {
		body = nil
		t.stats.malformed.Add(1)
		t.complain(err)
	}
	select {
	case t.slots <- struct{}{}:
	case <-t.stopped:
		return
	}
	t.guest.AddWork(1)
	request, forgotten, evicted := t.requests.Add(route{talk: t, envelope: envelope})
	if evicted {
		t.stats.requestsEvicted.Add(1)
		forgotten.talk.answered()
	}
	t.stepper.Hold()
	t.post(&effects.Received{Request: request, Body: body})
	t.stepper.Step()
}

// answered notes that one question more needs no answer of this connection.
func (t *talk) answered() {
	t.guest.AddWork(-1)
	<-t.slots
}

// told hands on what needs no answer. Of several messages that come together those that fitted are whole.
func (t *talk) told(m zmtp.Message) {
	several := t.channel.Framing() == effects.Several
	if m.Fault != zmtp.Whole || len(m.Frames) != 1 && !several {
		t.stats.malformed.Add(1)
		t.complain(fault(m, t.limits(), fmt.Errorf("a message of %d frames instead of 1", len(m.Frames))))
		if !several {
			return
		}
	}
	t.guest.AddWork(0)
	t.stepper.Hold()
	for _, body := range m.Frames {
		t.post(&effects.Received{Body: body})
	}
	t.stepper.Step()
}

func (t *talk) complain(err error) {
	t.door.Warn("a message cannot be taken", t.guest.Address, "channel", t.channel.String(), "peer", t.guest.RemoteAddr(),
		"err", err)
}

// Caller implements control.Transport.
func (t *transport) Caller(c effects.Conn) netip.Addr {
	at, _ := t.callers.Load(c)
	addr, _ := at.(netip.Addr)
	return addr
}

// reply answers one request, if its asker is still there and takes it.
func (t *transport) reply(request effects.Request, body []byte) {
	way, found := t.requests.Take(request)
	if !found {
		t.stats.repliesDropped.Add(1)
		return
	}
	if !zeromq.IsBody(way.talk.channel, body) {
		t.stats.repliesDropped.Add(1)
		way.talk.answered()
		return
	}
	wire := make([]byte, 0, len(body)+9+16*(len(way.envelope)+1))
	for _, f := range way.envelope {
		wire = zmtp.AppendFrame(wire, f, true)
	}
	if !way.talk.out.send(appendBody(wire, way.talk.channel, body)) {
		t.stats.repliesDropped.Add(1)
	}
	way.talk.answered()
}

// doors are what all servers of a transport share.
type doors struct {
	door     *door.Door
	purse    *door.ByteBudget
	writers  *sync.WaitGroup
	talks    *sync.Map // of talks, by themselves: those that may have answers under way
	callers  *sync.Map // of effects.Conn, to netip.Addr: where the connections that are served come from
	stopped  chan struct{}
	lastConn *atomic.Uint64
}

func newDoors(c *Config) doors {
	return doors{
		door: door.New(door.Config{Total: c.MaxGuests, PerAddress: c.GuestsPerAddress, Strangers: c.StrangersPerAddress,
			Patience: c.Handshake, Log: c.Log}),
		purse: door.NewByteBudget(c.IncomingBytes), writers: new(sync.WaitGroup), talks: new(sync.Map),
		callers: new(sync.Map),
		stopped: make(chan struct{}), lastConn: new(atomic.Uint64),
	}
}

// close ends all connections. Answers that were given have linger to leave.
func (d *doors) close(linger time.Duration) error {
	err := d.door.Shut()
	close(d.stopped)
	late := time.After(linger)
	d.talks.Range(func(t, _ any) bool {
		select {
		case <-t.(*talk).out.drain():
			return true
		case <-late:
			return false
		}
	})
	err = errors.Join(err, d.door.Close(context.Background()))
	d.writers.Wait()
	return err
}

func (d *doors) drawConn() effects.Conn { return effects.Conn(d.lastConn.Add(1)) }

func (t *transport) listen(s control.Server) (control.Server, error) {
	l, bound, err := t.bind(s)
	if err != nil {
		return s, err
	}
	at := &server{transport: t, channel: s.Channel, asks: s.Channel.Asks(), tells: s.TellLost}
	t.door.Serve(&netpoll.Listener{Listener: l, Poll: t.config.Poll}, s.Channel.String(), at.serve)
	return bound, nil
}

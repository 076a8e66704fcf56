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
	"github.com/kvferry/kvferry/runtime/secure"
)

// server reads the messages of a served channel.
type server struct {
	*transport
	channel        effects.Channel
	servesRequests bool // its messages need replies
	reportsLost    bool // whether a ConnLost is posted for a connection that posted a message
}

const (
	// skipMessages limits, in messages of the greatest length, the bytes that are read only to find the end of a
	// message that is too long.
	skipMessages = 4
)

// route is the way back to the peer that sent a request: the connection, and the envelope that goes in front of the
// reply.
type route struct {
	inboundConn *inboundConn
	envelope    [][]byte
}

// inboundConn represents a connection of a peer, and belongs to the goroutine that reads the connection.
type inboundConn struct {
	*server
	*wireConn
	doorConn     *door.Conn
	conn         effects.Conn
	origin       effects.Origin
	peer         secure.Peer
	posted       bool          // whether a message of this connection was posted
	requestSlots chan struct{} // holds one token for each unanswered request
}

// serveInbound reads an admitted connection until the end.
func (s *server) serveInbound(g *door.Conn) error {
	conn, peer, err := s.config.Guard.Accept(g.Conn, secure.FaceControl, s.channel.ClientRoles()) // The door's timeout bounds it.
	if errors.Is(err, secure.ErrPlain) {
		zmtp.Refuse(g.Conn, "kvferry: TLS required")
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	t := &inboundConn{server: s, wireConn: newWireConn(conn, &s.config, s.writers), doorConn: g, conn: s.nextConn(),
		origin: peer.Origin(zeromq.OriginOf(g.Address)), peer: peer,
		requestSlots: make(chan struct{}, s.channel.UnansweredMax())}
	if at, err := netip.ParseAddrPort(g.RemoteAddr().String()); err == nil {
		s.callers.Store(t.conn, at.Addr().Unmap())
		defer s.callers.Delete(t.conn)
	}
	defer t.out.close()
	if s.servesRequests {
		s.requestConns.Store(t, nil)
		defer s.requestConns.Delete(t)
	}
	defer t.reportLost()
	// The door's timeout is the deadline of this handshake, too.
	if err = t.handshake(serverKinds[s.servesRequests]); err == nil {
		g.MarkKnown()
		err = t.readMessages()
	}
	return err
}

// postReceived posts a message with what identifies this connection.
func (t *inboundConn) postReceived(ev *effects.Received) {
	ev.Conn, ev.Origin, ev.Channel = t.conn, t.origin, t.channel
	ev.Principal, ev.Roles, ev.Tenants, ev.Realm = t.peer.Principal, t.peer.Roles, t.peer.Tenants, t.peer.Realm
	t.posted = true
	t.sink.Post(ev)
}

// reportLost posts that the connection has ended, if the machine asked for that and has seen a message of the
// connection.
func (t *inboundConn) reportLost() {
	if t.reportsLost && t.posted {
		t.sink.Post(&effects.ConnLost{Conn: t.conn})
	}
}

func (s *server) messageLimits() zmtp.Limits {
	return zmtp.Limits{Frames: zeromq.MaxRequestFrames(s.channel), Bytes: s.config.MaxMessage,
		Skip: skipMessages * s.config.MaxMessage}
}

func (t *inboundConn) readMessages() error {
	r := t.newReader(t.messageLimits(), t.requestBudget, t.doorConn.Address)
	defer r.Release()
	for {
		r.Release()
		t.out.waitForRoom()
		m, err := r.Next()
		switch {
		case errors.Is(err, zmtp.ErrUnbounded):
			t.stats.malformed.Add(1)
			return fmt.Errorf("%w; the limit of a message is %d bytes and %d frames", err, t.config.MaxMessage,
				zeromq.MaxRequestFrames(t.channel))
		case err != nil:
			return err
		}
		if t.servesRequests {
			t.takeRequest(m)
		} else {
			t.takeMessages(m)
		}
	}
}

// takeRequest posts a request; the frames before the body are kept as the route of the reply. A malformed request is
// posted with an empty body. That is not a message of any channel, so the machine replies with an error and the peer
// does not wait until the timeout.
func (t *inboundConn) takeRequest(m zmtp.Message) {
	envelope, body, err := zeromq.CutRequest(t.channel, m.Frames)
	if err = faultError(m, t.messageLimits(), err); err != nil {
		body = nil
		t.stats.malformed.Add(1)
		t.logMalformed(err)
	}
	select {
	case t.requestSlots <- struct{}{}:
	case <-t.stopped:
		return
	}
	t.doorConn.AddWork(1)
	request, old, evicted := t.requests.Add(route{inboundConn: t, envelope: envelope})
	if evicted {
		t.stats.requestsEvicted.Add(1)
		old.inboundConn.releaseSlot()
	}
	t.stepper.Hold()
	t.postReceived(&effects.Received{Request: request, Body: body})
	t.stepper.Step()
}

// releaseSlot notes that a request of this connection is answered, or will never be.
func (t *inboundConn) releaseSlot() {
	t.doorConn.AddWork(-1)
	<-t.requestSlots
}

// takeMessages posts one-way messages. If the peer combined several and there were too many, the messages that fit the
// limits are whole and are posted.
func (t *inboundConn) takeMessages(m zmtp.Message) {
	several := t.channel.Framing() == effects.Several
	if m.Fault != zmtp.Whole || len(m.Frames) != 1 && !several {
		t.stats.malformed.Add(1)
		t.logMalformed(faultError(m, t.messageLimits(), fmt.Errorf("the message has %d frames instead of 1", len(m.Frames))))
		if !several {
			return
		}
	}
	t.doorConn.AddWork(0)
	t.stepper.Hold()
	for _, body := range m.Frames {
		t.postReceived(&effects.Received{Body: body})
	}
	t.stepper.Step()
}

func (t *inboundConn) logMalformed(err error) {
	t.door.Warn("a message is malformed", t.doorConn.Address, "channel", t.channel.String(), "peer", t.doorConn.RemoteAddr(),
		"err", err)
}

// Caller implements control.Transport.
func (t *transport) Caller(c effects.Conn) netip.Addr {
	at, _ := t.callers.Load(c)
	addr, _ := at.(netip.Addr)
	return addr
}

// sendReply sends the reply to a request, or drops and counts the reply if the peer is gone or the outbox is full.
func (t *transport) sendReply(request effects.Request, body []byte) {
	route, found := t.requests.Take(request)
	if !found {
		t.stats.repliesDropped.Add(1)
		return
	}
	if !zeromq.IsBody(route.inboundConn.channel, body) {
		t.stats.repliesDropped.Add(1)
		route.inboundConn.releaseSlot()
		return
	}
	wire := make([]byte, 0, len(body)+9+16*(len(route.envelope)+1))
	for _, f := range route.envelope {
		wire = zmtp.AppendFrame(wire, f, true)
	}
	if !route.inboundConn.out.sendBytes(appendBody(wire, route.inboundConn.channel, body)) {
		t.stats.repliesDropped.Add(1)
	}
	route.inboundConn.releaseSlot()
}

// inbound holds what all servers of a transport share.
type inbound struct {
	door          *door.Door
	requestBudget *door.ByteBudget
	writers       *sync.WaitGroup
	requestConns  *sync.Map // the *inboundConn of channels with requests: their outboxes may hold replies
	callers       *sync.Map // effects.Conn to netip.Addr: the address of each inbound connection
	stopped       chan struct{}
	lastConn      *atomic.Uint64
}

func newInbound(c *Config) inbound {
	return inbound{
		door: door.New(door.Config{MaxTotal: c.MaxInbound, MaxPerAddress: c.InboundPerAddress, MaxStrangers: c.HandshakingPerAddress,
			HandshakeTimeout: c.Handshake, Log: c.Log}),
		requestBudget: door.NewByteBudget(c.IncomingBytes), writers: new(sync.WaitGroup), requestConns: new(sync.Map),
		callers: new(sync.Map),
		stopped: make(chan struct{}), lastConn: new(atomic.Uint64),
	}
}

// close ends all inbound connections. Replies that were given have linger to leave.
func (d *inbound) close(linger time.Duration) error {
	err := d.door.StopAccepting()
	close(d.stopped)
	late := time.After(linger)
	d.requestConns.Range(func(t, _ any) bool {
		select {
		case <-t.(*inboundConn).out.drainChan():
			return true
		case <-late:
			return false
		}
	})
	err = errors.Join(err, d.door.Close(context.Background()))
	d.writers.Wait()
	return err
}

func (d *inbound) nextConn() effects.Conn { return effects.Conn(d.lastConn.Add(1)) }

// startServer binds a server and accepts connections. The result is s with the port that was bound.
func (t *transport) startServer(s control.Server) (control.Server, error) {
	l, bound, err := t.bindServer(s)
	if err != nil {
		return s, err
	}
	at := &server{transport: t, channel: s.Channel, servesRequests: s.Channel.HasReplies(), reportsLost: s.ReportLost}
	t.door.Serve(&netpoll.Listener{Listener: l, Poll: t.config.Poll}, s.Channel.String(), at.serveInbound)
	return bound, nil
}

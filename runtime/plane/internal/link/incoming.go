package link

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An IncomingLink is a link that a peer has opened in order to push to us and to read from us.
type IncomingLink struct {
	plane    *Plane
	conn     net.Conn
	address  netip.Prefix // the address of the peer; not valid on shm
	outbox   *outbox
	receiver Receiver
	hello    Hello

	// The fields below are guarded by the plane's mutex.
	number       uint64           // counts incoming links
	changed      sync.Cond        // signalled when lastRequest, lost or storing changes
	lastRequest  uint64           // number of the newest push or read
	pushes       map[uint64]*Push // not ended; together with servedReads and landings at most Bounds.Transfers
	servedReads  map[uint64]*ServedRead
	landings     int // posted as Landed, not confirmed
	pages        int // pages of all pushes, reads and landings
	storingPages int // pages being stored
	lost         bool
}

// Hello returns the peer's hello.
func (in *IncomingLink) Hello() Hello { return in.hello }

// Receiver returns what the medium's NewReceiver returned.
func (in *IncomingLink) Receiver() Receiver { return in.receiver }

// Fail ends the link.
func (in *IncomingLink) Fail() { _ = in.conn.Close() }

// serveConn serves an accepted connection until the connection ends. The door closes the connection when handle
// returns.
func (p *Plane) serveConn(accepted *door.Conn) error {
	err := p.acceptConn(accepted)
	if p.ctx.Err() != nil {
		return nil // This process is closing the plane, so the error says nothing about the peer.
	}
	return err
}

func (p *Plane) acceptConn(accepted *door.Conn) error {
	if err := accepted.SetDeadline(time.Now().Add(p.env.Bounds.HandshakeTimeout)); err != nil {
		return err
	}
	conn, err := p.medium.Accept(accepted.Conn)
	if err != nil {
		return err
	}
	defer conn.Close()
	kind, body, files, err := p.medium.ReadFirstFrame(conn)
	for _, file := range files {
		defer file.Close()
	}
	if err != nil {
		return err
	}
	if kind != KindHello && kind != KindJoin {
		return fmt.Errorf("%w: frame of kind %d instead of a hello", ErrMalformed, kind)
	}
	hello, err := ParseHello(body)
	if err != nil {
		return err
	}
	if kind == KindJoin {
		return p.joinStream(accepted, conn, &hello)
	}
	in := &IncomingLink{
		plane: p, conn: conn, address: accepted.Address, hello: hello,
		pushes: map[uint64]*Push{}, servedReads: map[uint64]*ServedRead{},
		// One done frame for each push or read, including done frames of ended requests that the peer has not read
		// yet.
		outbox: newOutbox(conn, 4*p.env.Bounds.Transfers, p.env.Bounds.StallTimeout),
	}
	in.changed.L = &p.mu
	code, err := p.registerLink(in, files)
	answer := Welcome{Code: code, From: p.env.Incarnation, Buffer: p.env.Pool.Buffer()}
	if code == effects.OK {
		answer.From = hello.To
		answer.Proof = answer.ComputeProof(&hello, p.tokenOf(&hello), secure.Binding(conn))
	}
	welcome := AppendWelcome(nil, answer)
	if code != effects.OK {
		_, _ = conn.Write(welcome) // The caller logs the error.
		return fmt.Errorf("link refused as %s: %w", code, err)
	}
	markProven(accepted)
	writeErr := p.medium.SendWelcome(conn, welcome, p.env.Pool)
	if err := conn.SetDeadline(time.Time{}); writeErr == nil {
		writeErr = err
	}
	return in.runLink(writeErr)
}

// markProven makes the door keep a connection after the peer has proven its identity: even an idle connection is then
// never closed in favour of a new connection.
func markProven(accepted *door.Conn) {
	accepted.MarkKnown()
	accepted.AddWork(1)
}

// authenticatePeer checks that a hello comes from the peer that the hello names: that the sender has the token which
// our machine gave to that peer alone, and that the hello addresses this incarnation of ours (M2). From then on the
// link belongs to that peer, whatever is sent on the link. On a connection with TLS the proof is valid for this
// connection alone, so that a member of the fleet between the two cannot pass the proof on.
func (p *Plane) authenticatePeer(kind Kind, h *Hello, conn net.Conn) (effects.Code, error) {
	if !identity.SameIncarnation(h.To, p.env.Incarnation) {
		return effects.Stale, fmt.Errorf("the hello addresses incarnation %x...; this is incarnation %x", h.To[:4], p.env.Incarnation[:4])
	}
	if !identity.EqualSecrets(h.Proof, h.ComputeProof(kind, p.tokenOf(h), secure.Binding(conn))) {
		return effects.Refused, fmt.Errorf("the peer that names itself %x... does not prove its identity; the peer must "+
			"first complete a handshake on the control plane", h.From[:4])
	}
	return effects.OK, nil
}

func (p *Plane) tokenOf(h *Hello) identity.Token { return p.env.Key.Token(p.name, h.From, h.To) }

func (p *Plane) registerLink(in *IncomingLink, files []*os.File) (effects.Code, error) {
	if code, err := p.authenticatePeer(KindHello, &in.hello, in.conn); code != effects.OK {
		return code, err
	}
	receiver, err := p.medium.NewReceiver(in, files)
	if err != nil {
		return effects.Refused, err
	}
	in.receiver = receiver
	p.mu.Lock()
	code := effects.OK
	if p.closed {
		code, err = effects.Closed, net.ErrClosed
	} else if p.incoming[in.hello.Session] != nil {
		code, err = effects.Refused, fmt.Errorf("session %x is in use", in.hello.Session)
	} else if err = p.checkLinkLimits(in); err != nil {
		code = effects.TooMany
	} else {
		p.lastIncoming++
		in.number = p.lastIncoming
		p.incoming[in.hello.Session] = in
		p.env.Pool.AddLink(in.hello.From)
	}
	p.mu.Unlock()
	if code != effects.OK {
		receiver.Close()
	}
	return code, err
}

// joinStream passes the connection of a stream to the link of that stream.
func (p *Plane) joinStream(accepted *door.Conn, conn net.Conn, hello *Hello) error {
	if code, err := p.authenticatePeer(KindJoin, hello, conn); code != effects.OK {
		return fmt.Errorf("stream refused as %s: %w", code, err)
	}
	p.mu.Lock()
	in := p.incoming[hello.Session]
	p.mu.Unlock()
	if in == nil || in.hello.From != hello.From {
		return fmt.Errorf("%w: stream of unknown session %x", ErrMalformed, hello.Session)
	}
	markProven(accepted)
	// The initiator waits for this message: until the door has marked the stream as known, the stream may have to give
	// way to strangers.
	if _, err := conn.Write(AppendJoined(nil)); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return p.medium.ServeStream(in, conn)
}

// runLink runs the link until the connection ends. If err is set, the link ends at once.
func (in *IncomingLink) runLink(err error) error {
	var writer sync.WaitGroup
	writer.Go(in.outbox.writeFrames)
	if err == nil {
		err = in.readRequests()
	}
	_ = in.conn.Close()
	in.outbox.close()
	writer.Wait()
	return in.endLink(err)
}

// readBytes is the number of bytes of a peer's requests that one read call takes: a header and a few pairs, so that a
// small request needs no second call.
const readBytes = 4 << 10

func (in *IncomingLink) readRequests() error {
	var buf []byte
	bounds := in.plane.env.Bounds
	from := bufio.NewReaderSize(in.conn, readBytes)
	for {
		kind, body, grown, err := ReadFrame(from, buf, maxFrame(bounds.PagesPerBatch))
		if err != nil {
			return err
		}
		buf = grown
		switch kind {
		case KindPush:
			var request TransferRequest
			if request, err = parseRequest(body, bounds.PagesPerBatch); err == nil {
				err = in.acceptPush(request)
			}
		case KindGather:
			var request TransferRequest
			if request, err = parseGather(body, bounds.PagesPerBatch); err == nil {
				err = in.acceptPush(request)
			}
		case KindRead:
			var request TransferRequest
			if request, err = parseRequest(body, bounds.PagesPerBatch); err == nil {
				err = in.acceptRead(request)
			}
		case KindCancel:
			var number uint64
			if number, err = parseCancel(body); err == nil {
				in.handleCancel(number)
			}
		case KindHello, KindWelcome, KindDone, KindJoin, KindJoined:
			err = fmt.Errorf("%w: frame of kind %d instead of push, gather, read or cancel", ErrMalformed, kind)
		default:
			err = fmt.Errorf("%w: unknown kind %d", ErrMalformed, kind)
		}
		if err != nil {
			return err
		}
	}
}

// recordRequest records the number of a peer's newest request, and fails unless the number is larger than the number of
// every earlier request. The caller holds the plane's mutex, also for sendDone.
func (in *IncomingLink) recordRequest(number uint64) error {
	if number <= in.lastRequest {
		return fmt.Errorf("%w: transfer %d after transfer %d; transfer numbers must increase", ErrMalformed, number, in.lastRequest)
	}
	in.lastRequest = number
	in.changed.Broadcast()
	return nil
}

func (in *IncomingLink) sendDone(number uint64, code effects.Code) {
	if in.lost {
		return
	}
	if _, ok := in.outbox.putFrame(queuedFrame{frame: appendDone(nil, number, code)}); !ok {
		in.Fail()
	}
}

func (in *IncomingLink) handleCancel(number uint64) {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	if p := in.pushes[number]; p != nil {
		p.abortPush(effects.Cancelled)
	}
	if s := in.servedReads[number]; s != nil {
		s.abortRead(effects.Cancelled)
	}
}

// endLink takes the link down. When LinkLost is posted, nothing of the link runs any more. The result is err, or nil
// if err only means that the peer closed in the normal way.
func (in *IncomingLink) endLink(err error) error {
	p := in.plane
	p.mu.Lock()
	if endLogLevel(err, len(in.pushes)+len(in.servedReads)) < slog.LevelWarn {
		p.log.Info("connection of a peer closed", "peer", in.conn.RemoteAddr())
		err = nil
	}
	in.lost = true
	for _, push := range in.pushes {
		push.abortPush(effects.PeerLost)
	}
	for _, read := range in.servedReads {
		read.abortRead(effects.PeerLost)
	}
	in.changed.Broadcast()
	p.mu.Unlock()
	in.receiver.Close()

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.incoming, in.hello.Session)
	// If a link of any plane still serves that peer, the peer is not lost.
	if p.env.Pool.RemoveLink(in.hello.From) {
		p.postEvent(&effects.LinkLost{Peer: in.hello.From})
	}
	return err
}

// WaitIdle waits until no page is being stored for the link. The link must be ending.
func (in *IncomingLink) WaitIdle() {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	for in.storingPages > 0 {
		in.changed.Wait()
	}
}

// FindPush waits until the peer has requested the push with that number, and returns the push, or nil if that push has
// ended or was refused. The second result is false if the link ends first.
func (in *IncomingLink) FindPush(number uint64) (*Push, bool) {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	for in.lastRequest < number && !in.lost {
		in.changed.Wait()
	}
	return in.pushes[number], !in.lost
}

// Pool returns the pool that pushes store into and reads are served from.
func (in *IncomingLink) Pool() *plane.Pool { return in.plane.env.Pool }

// Bounds returns the bounds of the plane.
func (in *IncomingLink) Bounds() plane.Bounds { return in.plane.env.Bounds }

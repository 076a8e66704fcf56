package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// An OutgoingLink is a link that this node has opened in order to push to a peer and to read from the peer.
type OutgoingLink struct {
	plane   *Plane
	id      effects.Link
	conn    net.Conn
	outbox  *outbox
	sender  Sender
	hello   Hello
	token   identity.Token // of the peer's plane, made for us
	welcome Welcome

	// The fields below are guarded by the plane's mutex.
	lastTransfer uint64               // number of the newest transfer
	transfers    map[uint64]*Transfer // not ended
	changed      sync.Cond            // signalled when accesses changes
	accesses     int                  // accesses of this process to our pages in progress
	ending       bool                 // no further access begins
	dropped      bool                 // the machine sent Drop
	lost         bool                 // everything has ended; the link is kept until Drop
}

// Hello returns the hello that was sent to the peer.
func (o *OutgoingLink) Hello() Hello { return o.hello }

// ProvenHello returns the first frame of a connection of the link, with the proof.
func (o *OutgoingLink) ProvenHello(kind Kind, conn net.Conn) Hello {
	h := o.hello
	h.Proof = h.ComputeProof(kind, o.token, secure.Binding(conn))
	return h
}

// PeerBuffer describes the peer's pool.
func (o *OutgoingLink) PeerBuffer() effects.Buffer { return o.welcome.Buffer }

// Pool returns the pool that pushes read from and reads store into.
func (o *OutgoingLink) Pool() *plane.Pool { return o.plane.env.Pool }

// Bounds returns the bounds of the plane.
func (o *OutgoingLink) Bounds() plane.Bounds { return o.plane.env.Bounds }

// Fail ends the link, as if the peer had disconnected.
func (o *OutgoingLink) Fail() { _ = o.conn.Close() }

// A refusal is an error with the code that Imported is to carry.
type refusal struct {
	code effects.Code
	err  error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.code, r.err) }
func (r *refusal) Unwrap() error { return r.err }

func newRefusal(code effects.Code, err error) error { return &refusal{code, err} }

// Import implements plane.Plane.
func (p *Plane) Import(e *effects.Import) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		p.postEvent(&effects.Imported{Corr: e.Corr, Code: effects.Closed})
	case p.imports >= p.env.Bounds.Links:
		p.postEvent(&effects.Imported{Corr: e.Corr, Code: effects.TooMany})
	default:
		p.imports++
		corr, peer, us, blob := e.Corr, e.Peer, e.Us, slices.Clone(e.Blob)
		p.wg.Go(func() { p.importPeer(corr, peer, us, blob) })
	}
}

func (p *Plane) importPeer(corr effects.Corr, peer, us effects.Incarnation, blob []byte) {
	o, err := p.connectPeer(peer, us, blob)
	p.mu.Lock()
	if err == nil && p.closed {
		err = newRefusal(effects.Closed, context.Canceled)
		o.Fail()
	}
	if err != nil {
		code := effects.Unreachable
		if r := (*refusal)(nil); errors.As(err, &r) {
			code = r.code
		}
		if p.closed {
			code = effects.Closed
		}
		p.logImportFailure(peer, blob, code, err)
		p.imports--
		p.postEvent(&effects.Imported{Corr: corr, Code: code})
		p.mu.Unlock()
		if o != nil {
			o.sender.Close()
		}
		return
	}
	o.id = p.env.IDs.NextLink()
	p.links[o.id] = o
	p.postEvent(&effects.Imported{Corr: corr, Code: effects.OK, Link: o.id})
	p.mu.Unlock()
	o.runLink()
}

// ErrOtherHost says that the peer is on another host, which this kind of plane cannot reach. The error is not worth a
// warning, because another plane reaches the peer.
var ErrOtherHost = errors.New("the peer is on another host; use another plane")

// logImportFailure logs why a link to a peer could not be opened: as a warning, unless this node ended the attempt or
// the peer is outside of this plane's reach.
func (p *Plane) logImportFailure(peer effects.Incarnation, blob []byte, code effects.Code, err error) {
	if code == effects.Closed || errors.Is(err, ErrOtherHost) {
		p.log.Debug("no link to a peer was opened", "err", err)
		return
	}
	_, address, _ := framing.ParseBlob(blob)
	p.limitedLog.Warn("cannot open a link to a peer: "+code.String(), fmt.Sprintf("%x", peer[:4]), "address", address,
		"err", err)
}

// connectPeer dials a peer and performs the handshake within Bounds.HandshakeTimeout.
func (p *Plane) connectPeer(peer, us effects.Incarnation, blob []byte) (*OutgoingLink, error) {
	token, address, err := framing.ParseBlob(blob)
	if err != nil {
		return nil, newRefusal(effects.Malformed, err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.env.Bounds.HandshakeTimeout)
	defer cancel()
	conn, err := p.medium.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = conn.Close() })
	o := &OutgoingLink{
		plane: p, conn: conn, transfers: map[uint64]*Transfer{},
		token: token, hello: Hello{From: us, To: peer, Buffer: p.env.Pool.Buffer()},
		// Each transfer has at most a push and a cancel in the outbox.
		outbox: newOutbox(conn, 2*p.env.Bounds.Transfers, p.env.Bounds.StallTimeout),
	}
	o.changed.L = &p.mu
	o.hello.Session = uuid.New()
	files, err := o.performHandshake()
	for _, file := range files {
		defer file.Close()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if o.sender, err = p.medium.NewSender(ctx, o, address, files); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if !interrupted() {
		o.sender.Close()
		return nil, context.Cause(ctx)
	}
	return o, nil
}

// performHandshake sends a hello and reads the welcome. The returned files were passed beside the welcome; the caller
// closes the files, even if an error is returned.
func (o *OutgoingLink) performHandshake() (files []*os.File, err error) {
	if err := o.conn.SetDeadline(time.Now().Add(o.plane.env.Bounds.HandshakeTimeout)); err != nil {
		return nil, err
	}
	hello := AppendHello(nil, KindHello, o.ProvenHello(KindHello, o.conn))
	if err := o.plane.medium.SendHello(o.conn, hello, o.Pool()); err != nil {
		return nil, err
	}
	kind, body, files, err := o.plane.medium.ReadFirstFrame(o.conn)
	if errors.Is(err, io.EOF) {
		return files, fmt.Errorf("the peer closed the connection instead of sending a welcome; see its log: it may be "+
			"of another version: %w", err)
	}
	if err != nil {
		return files, err
	}
	if kind != KindWelcome {
		return files, newRefusal(effects.Malformed, fmt.Errorf("%w: frame of kind %d instead of a welcome", ErrMalformed, kind))
	}
	w, err := parseWelcome(body)
	switch {
	case err != nil:
		return files, newRefusal(effects.Malformed, err)
	case w.Code != effects.OK:
		return files, newRefusal(restrictCode(w.Code, welcomeCodes), errors.New("the peer refused the link; see its log"))
	case w.From != o.hello.To:
		return files, newRefusal(effects.Stale, fmt.Errorf("incarnation %x... answered where %x... was expected", w.From[:4],
			o.hello.To[:4]))
	case !identity.EqualSecrets(w.Proof, w.ComputeProof(&o.hello, o.token, secure.Binding(o.conn))):
		return files, newRefusal(effects.Refused,
			fmt.Errorf("the peer that answered as %x... does not prove its identity", w.From[:4]))
	}
	o.welcome = w
	return files, o.conn.SetDeadline(time.Time{})
}

// runLink runs the link until the connection ends.
func (o *OutgoingLink) runLink() {
	var writer sync.WaitGroup
	writer.Go(o.outbox.writeFrames)
	err := o.readDones()
	_ = o.conn.Close()
	o.outbox.close()
	writer.Wait()
	o.plane.mu.Lock()
	o.ending = true
	o.plane.mu.Unlock()
	o.sender.Close()
	o.endLink(err)
}

func (o *OutgoingLink) readDones() error {
	var buf []byte
	in := bufio.NewReaderSize(o.conn, SmallFrame)
	for {
		kind, body, grown, err := ReadFrame(in, buf, SmallFrame)
		if err != nil {
			return err
		}
		buf = grown
		if kind != KindDone {
			return fmt.Errorf("%w: frame of kind %d instead of a done", ErrMalformed, kind)
		}
		number, code, err := parseDone(body)
		if err != nil {
			return err
		}
		code = restrictCode(code, doneCodes)
		o.plane.stepper.Hold()
		o.plane.mu.Lock()
		if t := o.transfers[number]; t != nil && t.read != nil {
			err = t.read.handleDone(code)
		} else if t != nil {
			err = t.handleDone(code)
		} else if number == 0 || number > o.lastTransfer {
			err = fmt.Errorf("%w: done of transfer %d; the newest is %d", ErrMalformed, number, o.lastTransfer)
		}
		o.plane.mu.Unlock()
		o.plane.stepper.Step()
		if err != nil {
			return err
		}
	}
}

// endLink reports the end of the link to the machine, when nothing of the link runs any more.
func (o *OutgoingLink) endLink(err error) {
	p := o.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	code := effects.PeerLost
	if p.closed {
		code = effects.Closed
	}
	level := endLogLevel(err, len(o.transfers))
	for _, t := range o.transfers {
		t.finishTransfer(code)
	}
	o.lost = true
	if o.dropped {
		o.removeLink()
		return
	}
	if !p.closed {
		p.log.Log(context.Background(), level, "link ended", "link", o.id, "peer", o.conn.RemoteAddr(), "err", err)
	}
	p.postEvent(&effects.LinkLost{Link: o.id, Peer: o.hello.To})
}

// endLogLevel returns the level at which the end of a link is logged. A peer that closes between two frames with
// nothing in progress has left in the normal way; any different end means that the peer was lost.
func endLogLevel(err error, inProgress int) slog.Level {
	if inProgress == 0 && errors.Is(err, io.EOF) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func (o *OutgoingLink) removeLink() {
	delete(o.plane.links, o.id)
	o.plane.imports--
	o.plane.postEvent(&effects.Dropped{Link: o.id})
}

// Drop implements plane.Plane.
func (p *Plane) Drop(link effects.Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.links[link]
	switch {
	case o == nil || o.dropped:
	case o.lost:
		o.removeLink()
	default:
		o.dropped = true
		o.Fail()
	}
}

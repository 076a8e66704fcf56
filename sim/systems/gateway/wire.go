package gateway

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// port is the channel on which each process takes everything: queries to side channels, notifications and writes.
const port = effects.ChannelOther

// transportTimeout is how long the transport of libnixl, or a query to a side channel, waits for the other end.
const transportTimeout = 800 * effects.Millisecond

// A frameKind is what a frame between processes stands for.
type frameKind uint8

const (
	frameQuery frameKind = iota + 1 // a query to the side channel with the number id; the reply is its answer
	frameNote                       // a notification from one agent to another
	frameWrite                      // a one-sided write of a page: the text is stored into the page with the number id
)

// A frame is a message between processes. Its reply says that it was carried out; a reply without bytes refuses it.
type frame struct {
	kind frameKind
	id   uint64
	to   string // the agent that it is for
	from string // the agent that sent it
	body []byte
}

func (f *frame) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, byte(f.kind)), f.id)
	for _, text := range []string{f.to, f.from} {
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
	}
	return append(b, f.body...)
}

// decode reads a frame, and reports false if the bytes are none.
func (f *frame) decode(b []byte) bool {
	const headBytes = 9
	if len(b) < headBytes {
		return false
	}
	f.kind, f.id, b = frameKind(b[0]), binary.LittleEndian.Uint64(b[1:]), b[headBytes:]
	for _, text := range []*string{&f.to, &f.from} {
		if len(b) < 2 || len(b) < 2+int(binary.LittleEndian.Uint16(b)) {
			return false
		}
		n := 2 + int(binary.LittleEndian.Uint16(b))
		*text, b = string(b[2:n]), b[n:]
	}
	f.body = slices.Clone(b)
	return true
}

var accepted = []byte{1}

// A purpose says what a frame was sent for, so that its sender knows what its reply completes.
type purpose struct {
	kind purposeKind
	id   uint64 // a query, a correlation number, or an index
	name string
}

type purposeKind uint8

// A completion is the end of a frame: the reply, or a code other than OK.
type completion struct {
	purpose purpose
	code    effects.Code
	body    []byte
}

// A dialer keeps a connection to each process that its owner sends frames to.
type dialer struct {
	conns       []peerConn
	lastCorr    effects.Corr
	completions []completion `snap:"scratch"` // of the present step, for the owner
}

// idleTimeout is how long an unused connection stays open. Without it a connection that has broken unnoticed would fail
// the first frame after a long pause.
const idleTimeout = 3 * effects.Second

// connWindow is the number of frames that may be in flight over a connection.
const connWindow = 64

type peerConn struct {
	used    effects.Time // when the last frame was sent
	addr    effects.Addr
	conn    effects.Conn
	opening effects.Corr
	sends   []pendingSend
}

type pendingSend struct {
	corr     effects.Corr
	deadline effects.Time
	purpose  purpose
	body     []byte // until it is sent: the connection is open, and its window has a place
}

// send sends a frame to a process. Its end is appended to d.completions at some time.
func (d *dialer) send(now effects.Time, out *effects.Effects, to effects.Addr, f *frame, p purpose) {
	i := slices.IndexFunc(d.conns, func(c peerConn) bool { return c.addr == to })
	if i < 0 {
		i = len(d.conns)
		d.lastCorr++
		d.conns = append(d.conns, peerConn{addr: to, opening: d.lastCorr})
		out.Open(effects.Open{Corr: d.lastCorr, Channel: port, Window: connWindow, Addr: to})
	}
	c := &d.conns[i]
	c.used = now
	d.lastCorr++
	s := pendingSend{corr: d.lastCorr, deadline: now.Add(transportTimeout), purpose: p, body: f.append(nil)}
	c.sends = append(c.sends, s)
	c.submit(out)
}

// submit sends the frames that wait, as far as the connection's window allows. Those that were sent are the first.
func (c *peerConn) submit(out *effects.Effects) {
	if c.conn == 0 {
		return
	}
	for k := range min(len(c.sends), connWindow) {
		if s := &c.sends[k]; s.body != nil {
			out.Send(effects.Send{Corr: s.corr, Conn: c.conn, Body: out.Cut(append(out.Arena(), s.body...))})
			s.body = nil
		}
	}
}

// handleConnEvent handles an event that may concern a connection, and what has taken too long.
func (d *dialer) handleConnEvent(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Opened:
		i := slices.IndexFunc(d.conns, func(c peerConn) bool { return c.opening == e.Corr && c.conn == 0 })
		switch {
		case i < 0 && e.Code == effects.OK:
			out.Close(e.Conn) // It was given up in the meantime.
		case i >= 0 && e.Code != effects.OK:
			d.drop(i, out)
		case i >= 0:
			c := &d.conns[i]
			c.conn, c.opening = e.Conn, 0
			c.submit(out)
		}
	case *effects.Replied:
		d.finish(e.Corr, effects.OK, e.Body, out)
	case *effects.Unanswered:
		d.finish(e.Corr, effects.Unreachable, nil, out)
	case *effects.ConnLost:
		if i := slices.IndexFunc(d.conns, func(c peerConn) bool { return c.conn == e.Conn }); i >= 0 {
			d.drop(i, out)
		}
	default: // It does not concern a connection.
	}
	for i := len(d.conns) - 1; i >= 0; i-- {
		if d.conns[i].deadline() <= now {
			d.drop(i, out)
		}
	}
}

// finish completes a frame, and sends the next that waits for a place in the window.
func (d *dialer) finish(corr effects.Corr, code effects.Code, body []byte, out *effects.Effects) {
	for i := range d.conns {
		c := &d.conns[i]
		for k := range c.sends {
			if s := c.sends[k]; s.corr == corr {
				c.sends = slices.Delete(slices.Clone(c.sends), k, k+1)
				c.submit(out)
				if code == effects.OK && len(body) == 0 {
					code = effects.Refused
				}
				d.completions = append(d.completions, completion{s.purpose, code, slices.Clone(body)})
				return
			}
		}
	}
}

// drop gives up a connection and everything that was sent over it.
func (d *dialer) drop(i int, out *effects.Effects) {
	c := d.conns[i]
	d.conns = slices.Delete(slices.Clone(d.conns), i, i+1)
	if c.conn != 0 {
		out.Close(c.conn)
	}
	for _, s := range c.sends {
		d.completions = append(d.completions, completion{s.purpose, effects.Unreachable, nil})
	}
}

// takeCompletions returns the frames that have ended since the last call.
func (d *dialer) takeCompletions() []completion {
	all := d.completions
	d.completions = nil
	return all
}

// connDeadline returns when a connection is to be given up.
func (d *dialer) connDeadline() (at effects.Time, any bool) {
	for i := range d.conns {
		if next := d.conns[i].deadline(); !any || next < at {
			at, any = next, true
		}
	}
	return at, any
}

// deadline returns when the first frame has taken too long, or the connection was unused for long enough.
func (c *peerConn) deadline() effects.Time {
	if len(c.sends) > 0 {
		return c.sends[0].deadline
	}
	return c.used.Add(idleTimeout)
}

package link

import (
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// This file is the client side of the handshake: the hello of LMCache's HIXL transfer channel, with kvferry's
// extensions. The functions here build and decode messages. The results are passed to met and to listed (handshake.go),
// which know no messages.

// helloOut is reused memory for the messages of the client side.
type helloOut struct {
	inits   protocol.HixlInitResponse    `snap:"scratch"`
	mems    protocol.HixlMemInfoResponse `snap:"scratch"`
	sides   protocol.P2PInitSideRetMsg   `snap:"scratch"`
	readied protocol.HixlReadyResponse   `snap:"scratch"`
	ours    []protocol.BufferInfo        `snap:"scratch"`
	offered [][]byte                     `snap:"scratch"`
}

// greet sends the hello.
func (c *calling) greet() {
	m := protocol.HixlInitRequest{LocalID: []byte(c.cfg.LocalID), EngineID: []byte(c.cfg.LocalID), HasExt: true}
	c.cfg.hello(&m.Ext, c.x.us)
	m.Ext.Stamps.ClockNS = int64(c.v.Now)
	c.p.conn.Send(c.v, c.corr(kindHello), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
}

// greeted handles the reply to a hello. A peer that refuses, does not fit or sends another message fails the attempt.
func (c *calling) greeted(s *helloOut, wire *protocol.Limits, body []byte) {
	m := &s.inits
	c.p.silent = 0
	if err := m.Decode(body, wire); err != nil {
		c.refused(&s.readied, wire, body, err, effects.Refused)
		return
	}
	if !m.HasExt {
		c.greetedPlain()
		return
	}
	if m.Ext.Code != 0 {
		c.v.Out.Mark(Marks.RefusedByPeer)
		code, why := effects.CodeFromWire(m.Ext.Code), effects.Why{}
		if found, same := c.cfg.judge(&m.Ext, false); found == code {
			why = same
		}
		why.Said = effects.Words(m.Ext.Reason)
		c.fail(code, why)
		return
	}
	if code, why := c.cfg.judge(&m.Ext, false); code != effects.OK {
		c.fail(code, why)
		return
	}
	c.p.met, c.x.echo, c.x.window = true, m.Ext.Stamps.ClockNS, c.cfg.window(&m.Ext)
	c.x.carries = c.cfg.carries(&m.Ext)
	c.x.layers, c.x.chunks = m.Ext.Layers, c.cfg.putsTogether(&m.Ext)
	c.x.geometry = append(c.x.geometry[:0], m.Ext.Geometry...)
	c.met(effects.Incarnation(m.Ext.Incarnation), m.Ext.Caps, m.Ext.Planes, m.Ext.Blobs)
}

// greetedPlain continues with a peer that has none of kvferry's extensions. Only bearer planes can serve the peer, by
// the address of its buffers alone; without a bearer plane the attempt fails.
func (c *calling) greetedPlain() {
	if !c.cfg.Bearer {
		c.strange("lmcache, transfer_channel hixl")
		return
	}
	c.x.window, c.x.carries, c.x.layers, c.x.chunks, c.x.geometry = 0, 0, 0, false, c.x.geometry[:0]
	c.met(effects.Incarnation{}, 0, c.cfg.PlaneNames[:1], [][]byte{nil})
}

// ask requests the peer's buffers and states this node's buffers.
func (c *calling) ask() {
	s := &c.out.hello
	s.ours = c.cfg.buffers(s.ours)
	m := protocol.HixlMemInfoRequest{LocalID: []byte(c.cfg.LocalID), Buffers: s.ours}
	if c.x.Extended() {
		m.HasExt, m.Stamps = true, protocol.Stamps{ClockNS: int64(c.v.Now), EchoNS: c.x.echo}
		// A peer that shares chunks may be asked to write into this node's pages.
		if c.cfg.Offers || c.p.where.Shares() {
			s.offered = c.cfg.blobs(s.offered, c.x.who, c.x.us)
			m.Planes, m.Blobs = c.cfg.PlaneNames, s.offered
		}
	}
	c.p.conn.Send(c.v, c.corr(kindList), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
}

// told handles the list of the peer's buffers. The attempt fails if a buffer has pages of another size. A peer that
// shares chunks is then asked where it takes lookups; otherwise the handshake is complete.
func (c *calling) told(s *helloOut, wire *protocol.Limits, body []byte) {
	m, x := &s.mems, c.x
	if err := m.Decode(body, wire); err != nil {
		c.refused(&s.readied, wire, body, err, effects.Malformed)
		return
	}
	if m.HasExt {
		x.echo = m.Stamps.ClockNS
	}
	x.buffers = x.buffers[:0]
	want := c.pageBytes(m)
	for i := range m.Buffers {
		b := &m.Buffers[i]
		if b.PageSize != want || b.PageSize == 0 {
			c.fail(effects.Mismatch, pagesDiffer(want, b.PageSize))
			return
		}
		x.buffers = append(x.buffers, effects.Buffer{
			ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
		})
	}
	if c.p.where.Shares() {
		m := protocol.P2PInitSideMsg{}
		c.p.conn.Send(c.v, c.corr(kindSide), c.v.Out.Cut(m.Append(c.v.Out.Arena())))
		c.stage()
		return
	}
	c.listed()
}

// pageBytes returns the page size that the peer's buffers must have: the size of this node's pages, or the size of all
// layers of a chunk together. A peer without extensions shows by its first buffer which of the two it uses.
func (c *calling) pageBytes(m *protocol.HixlMemInfoResponse) uint64 {
	x, whole := c.x, c.cfg.PageBytes*uint64(c.cfg.Layers)
	if !x.Extended() && c.cfg.Layers > 0 && len(m.Buffers) > 0 && whole <= math.MaxUint32 {
		x.chunks = m.Buffers[0].PageSize == whole
	}
	if x.chunks {
		return whole
	}
	return c.cfg.PageBytes
}

// sided handles the reply that states where a peer that shares chunks takes lookups, and completes the handshake.
func (c *calling) sided(s *helloOut, wire *protocol.Limits, body []byte) {
	m := &s.sides
	if err := m.Decode(body, wire); err != nil {
		c.refused(&s.readied, wire, body, err, effects.Malformed)
		return
	}
	at, err := protocol.ParseEndpoint(string(m.PeerLookupURL))
	if err != nil || at.Unspecified() {
		c.fail(effects.Invalid, effects.Why{
			Field: "peer_lookup_url", Ours: "host:port of the peer's own", Theirs: effects.Words(m.PeerLookupURL),
			Remedy: "give the peer's own address as its p2p_host",
		})
		return
	}
	c.p.lookup = effects.Addr{Host: at.Host, Port: at.Port}
	c.listed()
}

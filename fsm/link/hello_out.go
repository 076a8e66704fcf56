package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// The hello of LMCache's HIXL transfer channel, with our extensions, client side. It says and reads messages alone:
// what they found goes to met and to listed (handshake.go), which know no message.

// greet says hello.
func (l *Links) greet(v *env.Env, h table.Handle, p *Outbound) {
	m := protocol.HixlInitRequest{LocalID: []byte(l.cfg.LocalID), EngineID: []byte(l.cfg.LocalID), HasExt: true}
	l.hello(&m.Ext, l.Of(h).us)
	m.Ext.Stamps.ClockNS = int64(v.Now)
	p.conn.Send(v, l.corr(v, kindHello, h, p), v.Out.Cut(m.Append(v.Out.Arena())))
}

func (l *Links) onHello(v *env.Env, h table.Handle, p *Outbound, body []byte) {
	m := &l.inits
	p.silent = 0
	if err := m.Decode(body, &l.cfg.Wire); err != nil {
		l.refused(v, h, body, err, effects.Refused)
		return
	}
	if !m.HasExt {
		l.helloPlain(v, h, p)
		return
	}
	if m.Ext.Code != 0 {
		v.Out.Mark(MarkRefusedByPeer)
		code, why := effects.CodeFromWire(m.Ext.Code), effects.Why{}
		if found, same := l.judge(&m.Ext); found == code {
			why = same
		}
		why.Said = effects.Words(m.Ext.Reason)
		l.Fail(v, h, code, why)
		return
	}
	if code, why := l.judge(&m.Ext); code != effects.OK {
		l.Fail(v, h, code, why)
		return
	}
	p.met, l.Of(h).echo = true, m.Ext.Stamps.ClockNS
	l.met(v, h, p, effects.Incarnation(m.Ext.Incarnation), m.Ext.Caps, m.Ext.Planes, m.Ext.Blobs)
}

// helloPlain goes on with a peer that has none of our extensions: only bearer
// planes can serve it, by the address of its buffers alone.
func (l *Links) helloPlain(v *env.Env, h table.Handle, p *Outbound) {
	if !l.cfg.Bearer {
		l.strange(v, h, "lmcache, transfer_channel hixl")
		return
	}
	l.met(v, h, p, effects.Incarnation{}, 0, l.cfg.PlaneNames[:1], [][]byte{nil})
}

// ask asks for the peer's buffers, and tells ours.
func (l *Links) ask(v *env.Env, h table.Handle, p *Outbound) {
	m := protocol.HixlMemInfoRequest{LocalID: []byte(l.cfg.LocalID), Buffers: l.buffers(l.mem.Buffers)}
	l.mem.Buffers = m.Buffers
	x := l.Of(h)
	if x.Extended() {
		m.HasExt, m.Stamps = true, protocol.Stamps{ClockNS: int64(v.Now), EchoNS: x.echo}
		if l.cfg.Offers {
			m.Planes, m.Blobs = l.cfg.PlaneNames, l.blobs(x.who, x.us)
		}
	}
	p.conn.Send(v, l.corr(v, kindList, h, p), v.Out.Cut(m.Append(v.Out.Arena())))
}

func (l *Links) onList(v *env.Env, h table.Handle, p *Outbound, body []byte) {
	if err := l.mems.Decode(body, &l.cfg.Wire); err != nil {
		l.refused(v, h, body, err, effects.Malformed)
		return
	}
	x := l.Of(h)
	if l.mems.HasExt {
		x.echo = l.mems.Stamps.ClockNS
	}
	x.buffers = x.buffers[:0]
	for i := range l.mems.Buffers {
		b := &l.mems.Buffers[i]
		if b.PageSize != l.cfg.PageBytes || b.PageSize == 0 {
			l.Fail(v, h, effects.Mismatch, pagesDiffer(l.cfg.PageBytes, b.PageSize))
			return
		}
		x.buffers = append(x.buffers, effects.Buffer{
			ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
		})
	}
	l.listed(v, h, p)
}

// Package notice hands messages over to addresses that peers name: one connection to each, one message at a time. It
// may be relied on for this: who takes none delays nobody else; a message is tried a bounded number of times and then
// given up; and nobody's messages or addresses take the room of another's.
package notice

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Notices carry the messages that end offers to where their senders take them. One connection goes to each address,
// and one message at a time: a sender that takes none delays no other. One that cannot be handed over is tried again
// a bounded number of times; then the offer ends by its time.
//
// One address is there for each class whatever the others do, and as many again for all. A class that names
// addresses without end has no more of those than it leaves, and of messages likewise: so it keeps nobody else's
// from being told.
type Notices struct {
	cfg       Config `snap:"share"`
	addresses table.Slab[address]
	byText    table.Index
	idle      table.List // addresses that are told nothing, the one idle longest first
	rows      table.Slab[notice]
	inUse     []uint32    // addresses that are not idle, by class
	others    table.Share // those beyond the first of each class
	words     table.Share // of rows
}

// Config is what notices go by.
type Config struct {
	Seed                   uint64           // of the index
	BackoffMin, BackoffMax effects.Duration // between tries
	Peers                  int              // addresses: AddressesMax of them
	Words                  int              // messages
	TriesMax               uint32           // tries to hand one over
}

// An address is found by the text that senders announce.
type address struct {
	text    []byte
	class   int // for which it counts until it is idle
	addr    effects.Addr
	conn    effects.Conn
	opening bool
	telling bool
	users   uint32 // offers whose end it will be told
	queue   table.List
	timer   kernel.TimerID `snap:"set"`
}

// A notice is a message that is to be handed over.
type notice struct {
	class int
	body  []byte
	tries uint32
}

// Kinds of completions.
const (
	kindOpenNotice uint8 = 1 + iota
	kindNotice
)

// IsTelling says whether a completion is that of a notice, not of a connection.
func IsTelling(ref kernel.Ref) bool { return ref.Kind == kindNotice }

// AddressesMax is the most addresses where there are so many peers, each with one connection at the most.
func AddressesMax(peers int) int { return 2 * peers }

// New returns no notices.
func New(cfg Config, classes int) Notices { return new(Notices).Emptied(cfg, classes) }

// Emptied returns what New does, in the memory of n, which is not used any more.
func (n *Notices) Emptied(cfg Config, classes int) Notices {
	return Notices{
		cfg: cfg, addresses: n.addresses.Emptied(AddressesMax(cfg.Peers)), byText: n.byText.Emptied(),
		rows:  n.rows.Emptied(cfg.Words),
		inUse: table.Zeroed(n.inUse, classes), others: n.others.Emptied(cfg.Peers, classes),
		words: n.words.Emptied(cfg.Words, classes),
	}
}

// Promise finds or makes an address whose text parses, for a notice to come to class. It returns zero when the class
// has its share: then nothing is told.
func (n *Notices) Promise(v *env.Env, class int, text []byte) table.Handle {
	h := n.find(text)
	if h != 0 && !n.addresses.Listed(h) {
		n.addresses.Get(h).users++
		return h
	}
	if n.inUse[class] > 0 && !n.others.May(class) {
		v.Out.Mark(Marks.HostsFull)
		return 0
	}
	if h == 0 {
		h = n.meet(v, text)
	} else {
		n.addresses.Unlink(&n.idle, h)
	}
	if n.inUse[class]++; n.inUse[class] > 1 {
		n.others.Take(class)
	}
	x := n.addresses.Get(h)
	x.class, x.users = class, 1
	return h
}

// meet makes an address. There is room, because those in use are no more than shares allow.
func (n *Notices) meet(v *env.Env, text []byte) table.Handle {
	if n.addresses.Full() {
		n.forget(v, n.idle.Front())
	}
	at, err := protocol.ParseEndpoint(string(text))
	if err != nil {
		panic("BUG: an offer's done address was not checked")
	}
	h, x := n.addresses.Add()
	*x = address{text: append(x.text[:0], text...), addr: effects.Addr{Host: at.Host, Port: at.Port}}
	n.byText.Add(table.Hash(n.cfg.Seed, text), h)
	return h
}

func (n *Notices) find(text []byte) table.Handle {
	for s := n.byText.Seek(table.Hash(n.cfg.Seed, text)); s.Found(); s = n.byText.Next(s) {
		if bytes.Equal(n.addresses.Get(s.Handle()).text, text) {
			return s.Handle()
		}
	}
	return 0
}

// Knows says whether an address was found good before.
func (n *Notices) Knows(text []byte) bool { return n.find(text) != 0 }

func (n *Notices) forget(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	x.hangUp(v)
	n.addresses.Unlink(&n.idle, h)
	n.byText.Remove(table.Hash(n.cfg.Seed, x.text), h)
	n.addresses.Remove(h)
}

// Notify queues what was promised to an address.
func (n *Notices) Notify(v *env.Env, h table.Handle, class int, body []byte) {
	x := n.addresses.Get(h)
	if x == nil {
		return
	}
	x.users--
	if !n.words.May(class) {
		v.Out.Mark(Marks.HostsFull)
		n.maybeIdle(h, x)
		return
	}
	n.words.Take(class)
	d, slot := n.rows.Add()
	*slot = notice{class: class, body: append(slot.body[:0], body...)}
	n.rows.PushBack(&x.queue, d)
	n.next(v, h)
}

func (n *Notices) maybeIdle(h table.Handle, x *address) {
	if x.users > 0 || x.queue.Len() > 0 || x.opening || x.telling || x.timer != 0 {
		return
	}
	n.addresses.PushBack(&n.idle, h)
	if n.inUse[x.class]--; n.inUse[x.class] > 0 {
		n.others.Give(x.class)
	}
}

// next hands over the next notice if the connection is free.
func (n *Notices) next(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	switch {
	case x.opening || x.telling || x.timer != 0:
		return
	case x.queue.Len() == 0:
		n.maybeIdle(h, x)
		return
	case x.conn == 0:
		x.opening = true
		v.Out.Open(effects.Open{
			Corr:    v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerNotices, Kind: kindOpenNotice, Subject: h}),
			Channel: effects.ChannelDone, Addr: x.addr,
		})
		return
	}
	x.telling = true
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerNotices, Kind: kindNotice, Subject: h}), Conn: x.conn,
		Body: v.Out.Cut(append(v.Out.Arena(), n.rows.Get(x.queue.Front()).body...)),
	})
}

// Due goes on with an address that was left alone for a while.
func (n *Notices) Due(v *env.Env, h table.Handle) {
	n.addresses.Get(h).timer = 0
	n.next(v, h)
}

// Opened handles the completion of the Open of a connection.
func (n *Notices) Opened(v *env.Env, h table.Handle, ev *effects.Opened) {
	x := n.addresses.Get(h)
	x.opening = false
	if ev.Code != effects.OK {
		n.failed(v, h, x)
		return
	}
	x.conn = ev.Conn
	v.Conns.Bind(x.conn, kernel.Ref{Owner: kernel.OwnerNotices, Subject: h})
	n.next(v, h)
}

// hangUp closes its connection, if there is one.
func (x *address) hangUp(v *env.Env) {
	if x.conn != 0 {
		v.Conns.Unbind(x.conn)
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// Sent handles the completion of a notice.
func (n *Notices) Sent(v *env.Env, h table.Handle, code effects.Code) {
	x := n.addresses.Get(h)
	x.telling = false
	if code != effects.OK {
		// Not handed over: nothing was said yet.
		x.hangUp(v)
		n.failed(v, h, x)
		return
	}
	n.drop(x)
	n.next(v, h)
}

func (n *Notices) drop(x *address) {
	first := x.queue.Front()
	d := n.rows.Get(first)
	n.words.Give(d.class)
	d.body = table.ShedBytes(d.body)
	n.rows.Unlink(&x.queue, first)
	n.rows.Remove(first)
}

// failed tries again later, or gives the first notice up.
func (n *Notices) failed(v *env.Env, h table.Handle, x *address) {
	d := n.rows.Get(x.queue.Front())
	d.tries++
	delay := min(n.cfg.BackoffMin<<min(d.tries-1, 20), n.cfg.BackoffMax)
	if d.tries >= n.cfg.TriesMax {
		v.Out.Mark(Marks.DoneGivenUp)
		n.drop(x)
	}
	v.Timers.Set(&x.timer, v.Now.Add(delay), kernel.Ref{Owner: kernel.OwnerNotices, Subject: h})
}

// Lost forgets the connection to an address, which is gone.
func (n *Notices) Lost(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	if x.telling { // The notice's own completion says so.
		return
	}
	x.hangUp(v)
	if !n.addresses.Listed(h) {
		n.next(v, h)
	}
}

// Left is the number of notices that were not handed over.
func (n *Notices) Left() int { return n.rows.Len() }

// Shares are how many notices and addresses classes are counted to have, and how many there are; to look at only.
func (n *Notices) Shares() (words, there, addresses, inUse int) {
	addresses = n.others.All()
	for class := range n.inUse {
		addresses += int(min(n.inUse[class], 1)) // The first is not of the share.
	}
	return n.words.All(), n.rows.Len(), addresses, n.addresses.Len() - n.idle.Len()
}

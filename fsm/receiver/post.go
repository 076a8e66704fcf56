package receiver

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// posts carry the words that end offers to where their senders take them. One connection goes to each address,
// and one word at a time: a sender that takes none delays no other. A word that cannot be handed over is
// tried again a bounded number of times; then the offer ends by its time.
//
// One address is there for each class whatever the others do, and as many again for all. A class that names addresses without end
// has no more of those than it leaves, and of words likewise: so it keeps nobody else's from being told.
type posts struct {
	seed   uint64
	min    effects.Duration
	max    effects.Duration
	hosts  table.Slab[host]
	byText table.Index
	idle   table.List // hosts that nothing is to be told, the one idle longest first
	dones  table.Slab[done]
	inUse  []uint32    // hosts that are not idle, by class
	others table.Share // those beyond the first of each class
	words  table.Share
}

// A host is one address. It is found by the text that senders announce.
type host struct {
	text    []byte
	class   int // for which it counts until it is idle
	addr    effects.Addr
	conn    effects.Conn
	opening bool
	telling bool
	users   uint32 // batches that will tell it something
	queue   table.List
	timer   kernel.TimerID `snap:"set"`
}

// A done says that an offer is not read any more.
type done struct {
	class   int
	pull    protocol.PullID
	us      effects.Incarnation // who we are to it
	to      effects.Incarnation
	grant   uint64
	code    effects.Code
	missing uint32
	tries   uint32
}

// tellsMax bounds the tries to hand over one word.
const tellsMax = 5

func newPosts(cfg *Config, classes int, seed uint64) posts {
	words := int(cfg.GrantsMax + cfg.OffersMax)
	return posts{
		seed: seed, min: cfg.BackoffMin, max: cfg.BackoffMax,
		hosts: table.NewSlab[host](2 * int(cfg.PeersMax)), dones: table.NewSlab[done](words),
		inUse: make([]uint32, classes), others: table.NewShare(int(cfg.PeersMax), classes), words: table.NewShare(words, classes),
	}
}

// host finds or makes the host of an address that parses, for a word to come to class. It returns zero when the class has its
// share: then the word is not told.
func (p *posts) host(v *env.Env, class int, text []byte) table.Handle {
	h := p.find(text)
	if h != 0 && !p.hosts.Listed(h) {
		p.hosts.Get(h).users++
		return h
	}
	if p.inUse[class] > 0 && !p.others.May(class) {
		v.Out.Mark(MarkHostsFull)
		return 0
	}
	if h == 0 {
		h = p.meet(v, text)
	} else {
		p.hosts.Unlink(&p.idle, h)
	}
	if p.inUse[class]++; p.inUse[class] > 1 {
		p.others.Take(class)
	}
	x := p.hosts.Get(h)
	x.class, x.users = class, 1
	return h
}

// meet makes a host. There is room, because those in use are no more than shares allow.
func (p *posts) meet(v *env.Env, text []byte) table.Handle {
	if p.hosts.Full() {
		p.forget(v, p.idle.Front())
	}
	at, err := protocol.ParseEndpoint(string(text))
	if err != nil {
		panic("BUG: an offer's done address was not checked")
	}
	h, x := p.hosts.Add()
	*x = host{text: append(x.text[:0], text...), addr: effects.Addr{Host: at.Host, Port: at.Port}}
	p.byText.Add(table.Hash(p.seed, text), h)
	return h
}

func (p *posts) find(text []byte) table.Handle {
	for s := p.byText.Seek(table.Hash(p.seed, text)); s.Found(); s = p.byText.Next(s) {
		if bytes.Equal(p.hosts.Get(s.Handle()).text, text) {
			return s.Handle()
		}
	}
	return 0
}

func (p *posts) forget(v *env.Env, h table.Handle) {
	x := p.hosts.Get(h)
	if x.conn != 0 {
		v.Out.Close(x.conn)
	}
	p.hosts.Unlink(&p.idle, h)
	p.byText.Remove(table.Hash(p.seed, x.text), h)
	p.hosts.Remove(h)
}

// tell queues the word that host promised to take.
func (p *posts) tell(v *env.Env, r *Receiver, h table.Handle, what done) {
	x := p.hosts.Get(h)
	if x == nil {
		return
	}
	x.users--
	if !p.words.May(what.class) {
		v.Out.Mark(MarkHostsFull)
		p.maybeIdle(h, x)
		return
	}
	p.words.Take(what.class)
	d, slot := p.dones.Add()
	*slot = what
	p.dones.PushBack(&x.queue, d)
	p.next(v, r, h)
}

func (p *posts) maybeIdle(h table.Handle, x *host) {
	if x.users > 0 || x.queue.Len() > 0 || x.opening || x.telling || x.timer != 0 {
		return
	}
	p.hosts.PushBack(&p.idle, h)
	if p.inUse[x.class]--; p.inUse[x.class] > 0 {
		p.others.Give(x.class)
	}
}

// next hands over the next word if the connection is free.
func (p *posts) next(v *env.Env, r *Receiver, h table.Handle) {
	x := p.hosts.Get(h)
	switch {
	case x.opening || x.telling || x.timer != 0:
		return
	case x.queue.Len() == 0:
		p.maybeIdle(h, x)
		return
	case x.conn == 0:
		x.opening = true
		v.Out.Open(effects.Open{
			Corr:    v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kindOpenPost, Subject: h}),
			Channel: effects.ChannelDone, Addr: x.addr,
		})
		return
	}
	x.telling = true
	d := p.dones.Get(x.queue.Front())
	m := &r.done
	*m = protocol.PullDoneSignal{PullID: d.pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.us), To: protocol.UUID(d.to),
		Grant: d.grant, Code: uint32(d.code), Missing: d.missing,
	}}
	if d.code != effects.OK {
		m.Ext.Reason = ended(d.code).Reason()
	}
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kindPost, Subject: h}),
		Conn: x.conn, Body: v.Out.Cut(m.Append(v.Out.Arena())),
	})
}

// onPostOpened handles the completion of the Open of a connection for words.
func (r *Receiver) onPostOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	x := r.posts.hosts.Get(ref.Subject)
	x.opening = false
	if ev.Code == effects.OK {
		x.conn = ev.Conn
		r.posts.next(v, r, ref.Subject)
		return
	}
	r.posts.failed(v, r, ref.Subject, x)
}

// OnSendDone handles the completion of a word.
func (r *Receiver) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	x := r.posts.hosts.Get(ref.Subject)
	x.telling = false
	if code != effects.OK {
		// Not handed over: nothing was said yet.
		v.Out.Close(x.conn)
		x.conn = 0
		r.posts.failed(v, r, ref.Subject, x)
		return
	}
	r.posts.drop(x)
	r.posts.next(v, r, ref.Subject)
}

func (p *posts) drop(x *host) {
	first := x.queue.Front()
	p.words.Give(p.dones.Get(first).class)
	p.dones.Unlink(&x.queue, first)
	p.dones.Remove(first)
}

// failed tries again later, or gives the first word up.
func (p *posts) failed(v *env.Env, r *Receiver, h table.Handle, x *host) {
	d := p.dones.Get(x.queue.Front())
	d.tries++
	delay := min(p.min<<min(d.tries-1, 20), p.max)
	if d.tries >= tellsMax {
		v.Out.Mark(MarkDoneGivenUp)
		p.drop(x)
	}
	v.Timers.Set(&x.timer, v.Now.Add(delay), timerRef(timerPost, h))
}

// lost forgets a connection that is gone, and says whether it was one of these.
func (p *posts) lost(v *env.Env, r *Receiver, conn effects.Conn) bool {
	for slot := range p.hosts.Slots() {
		h := p.hosts.At(slot)
		if h == 0 || p.hosts.Get(h).conn != conn {
			continue
		}
		if x := p.hosts.Get(h); !x.telling { // else the word's own completion says so
			v.Out.Close(conn)
			x.conn = 0
			if !p.hosts.Listed(h) {
				p.next(v, r, h)
			}
		}
		return true
	}
	return false
}

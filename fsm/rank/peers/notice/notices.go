// Package notice delivers notifications to addresses that peers announce, for example the done message by which a
// sender learns that an offer has ended. Each address has a single connection and a single notification in flight.
//
// A caller may rely on the following:
//
//   - An address that accepts no notifications does not delay the remaining addresses.
//   - A notification is tried a bounded number of times and then given up.
//   - No fairness class can use up the notifications or the addresses of another class.
//
// Example: a receiver accepts an offer and calls ReserveAddress with the address that the offer names. When the
// receiver has read the chunks, the receiver calls QueueNotice with the encoded done message. The first notification
// for the address opens a connection, and the message is posted when the connection is open. If the sender is down, the
// attempt fails and is repeated after BackoffMin, then after twice that time, and so on. After TriesMax attempts the
// notification is given up, and the sender's lease ends by its time.
package notice

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Notices holds the notifications that wait and the addresses that receive them. There is a single connection to each
// address, and a single notification in flight there, so that a sender that accepts none does not delay the remaining
// senders. A notification that cannot be delivered is tried a bounded number of times; after that the offer ends by its
// time.
//
// Each class has an address of its own whatever the remaining classes do. As many addresses again are shared among all
// classes. A class that names ever more addresses gets no more than its share of the shared addresses, and likewise of
// the notifications. Therefore no class prevents another from being notified.
type Notices struct {
	cfg            Config `snap:"share"`
	addresses      table.Slab[address]
	byText         table.Index        // addresses by their text
	idle           table.List         // addresses without notifications; the address that is idle longest is first
	rows           table.Slab[notice] // notifications that wait or are in flight
	inUse          []uint32           // addresses that are not idle, by class
	extraAddresses table.Share        // addresses in use beyond the first of each class
	noticeShare    table.Share        // notifications of each class
}

// Config is the configuration of Notices.
type Config struct {
	Seed                   uint64           // seed of the hash index
	BackoffMin, BackoffMax effects.Duration // bounds of the delay between attempts
	Peers                  int              // number of peers; there are AddressesMax(Peers) addresses
	NoticesMax             int              // limit of notifications
	TriesMax               uint32           // attempts to deliver a notification
}

// address is a destination of notifications. Addresses are found by the text that senders announce.
type address struct {
	text    []byte
	class   int // the class that the address counts for until the address is idle
	addr    effects.Addr
	conn    effects.Conn
	opening bool           // the connection is being opened
	sending bool           // a notification is in flight
	users   uint32         // offers whose end will be reported to the address
	queue   table.List     // notifications in order
	timer   kernel.TimerID `snap:"set"`
}

// notice is a notification that has not been delivered yet.
type notice struct {
	class    int
	body     []byte
	failures uint32 // failed attempts
}

// Kinds of completions.
const (
	kindOpenNotice uint8 = 1 + iota
	kindNotice
)

// IsDelivery reports whether a completion belongs to a notification. If not, the completion belongs to the opening of a
// connection.
func IsDelivery(ref kernel.Ref) bool { return ref.Kind == kindNotice }

// AddressesMax returns the largest number of addresses for the given number of peers. Each address has at most a single
// connection.
func AddressesMax(peers int) int { return 2 * peers }

// New returns Notices without addresses and notifications, for the given number of classes.
func New(cfg Config, classes int) Notices { return new(Notices).Recycle(cfg, classes) }

// Recycle returns the same as New, but reuses the memory of n, which must not be used afterwards.
func (n *Notices) Recycle(cfg Config, classes int) Notices {
	return Notices{
		cfg: cfg, addresses: n.addresses.Recycle(AddressesMax(cfg.Peers)), byText: n.byText.Recycle(),
		rows:  n.rows.Recycle(cfg.NoticesMax),
		inUse: table.RecycleSlice(n.inUse, classes), extraAddresses: n.extraAddresses.Recycle(cfg.Peers, classes),
		noticeShare: n.noticeShare.Recycle(cfg.NoticesMax, classes),
	}
}

// ReserveAddress reserves an address for a later notification on behalf of a class, and inserts the address if the
// address is new. The text must be a valid address. ReserveAddress returns zero if the class has used up its share of
// addresses; then no notification is sent.
func (n *Notices) ReserveAddress(v *env.Env, class int, text []byte) table.Handle {
	h := n.findAddress(text)
	if h != 0 && !n.addresses.InList(h) {
		n.addresses.Get(h).users++
		return h
	}
	if n.inUse[class] > 0 && !n.extraAddresses.HasRoom(class) {
		v.Out.Mark(Marks.HostsFull)
		return 0
	}
	if h == 0 {
		h = n.addAddress(v, text)
	} else {
		n.addresses.Unlink(&n.idle, h)
	}
	if n.inUse[class]++; n.inUse[class] > 1 {
		n.extraAddresses.Acquire(class)
	}
	x := n.addresses.Get(h)
	x.class, x.users = class, 1
	return h
}

// addAddress inserts an address. There is always room, because the shares bound the addresses in use, and an idle
// address can be evicted.
func (n *Notices) addAddress(v *env.Env, text []byte) table.Handle {
	if n.addresses.Full() {
		n.evictAddress(v, n.idle.Front())
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

// findAddress returns the address with a text, or zero.
func (n *Notices) findAddress(text []byte) table.Handle {
	for s := n.byText.Find(table.Hash(n.cfg.Seed, text)); s.Found(); s = n.byText.Next(s) {
		if bytes.Equal(n.addresses.Get(s.Handle()).text, text) {
			return s.Handle()
		}
	}
	return 0
}

// HasAddress reports whether an address is in the table, which means that the text of the address was checked before.
func (n *Notices) HasAddress(text []byte) bool { return n.findAddress(text) != 0 }

// evictAddress evicts an idle address and closes its connection.
func (n *Notices) evictAddress(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	x.closeConn(v)
	n.addresses.Unlink(&n.idle, h)
	n.byText.Remove(table.Hash(n.cfg.Seed, x.text), h)
	n.addresses.Remove(h)
}

// QueueNotice queues the notification that was promised to an address. If the class has used up its share of
// notifications, the notification is dropped.
func (n *Notices) QueueNotice(v *env.Env, h table.Handle, class int, body []byte) {
	x := n.addresses.Get(h)
	if x == nil {
		return
	}
	x.users--
	if !n.noticeShare.HasRoom(class) {
		v.Out.Mark(Marks.HostsFull)
		n.maybeIdle(h, x)
		return
	}
	n.noticeShare.Acquire(class)
	d, slot := n.rows.Add()
	*slot = notice{class: class, body: append(slot.body[:0], body...)}
	n.rows.PushBack(&x.queue, d)
	n.sendNext(v, h)
}

// isNeeded reports whether something is promised to the address, queued, in flight or scheduled.
func (x *address) isNeeded() bool {
	return x.users > 0 || x.queue.Len() > 0 || x.opening || x.sending || x.timer != 0
}

// maybeIdle marks an address as idle if the address is not needed.
func (n *Notices) maybeIdle(h table.Handle, x *address) {
	if x.isNeeded() {
		return
	}
	n.addresses.PushBack(&n.idle, h)
	if n.inUse[x.class]--; n.inUse[x.class] > 0 {
		n.extraAddresses.Release(x.class)
	}
}

// sendNext sends the next notification of an address if the connection is free, and opens the connection if there is
// none.
func (n *Notices) sendNext(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	switch {
	case x.opening || x.sending || x.timer != 0:
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
	x.sending = true
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerNotices, Kind: kindNotice, Subject: h}), Conn: x.conn,
		Body: v.Out.Cut(append(v.Out.Arena(), n.rows.Get(x.queue.Front()).body...)),
	})
}

// OnTimer resumes deliveries to an address after a delay.
func (n *Notices) OnTimer(v *env.Env, h table.Handle) {
	n.addresses.Get(h).timer = 0
	n.sendNext(v, h)
}

// OnOpened handles the completion of a connection attempt.
func (n *Notices) OnOpened(v *env.Env, h table.Handle, ev *effects.Opened) {
	x := n.addresses.Get(h)
	x.opening = false
	if ev.Code != effects.OK {
		n.scheduleRetry(v, h, x)
		return
	}
	x.conn = ev.Conn
	v.Conns.Bind(x.conn, kernel.Ref{Owner: kernel.OwnerNotices, Subject: h})
	n.sendNext(v, h)
}

// closeConn closes the connection to the address, if there is a connection.
func (x *address) closeConn(v *env.Env) {
	if x.conn != 0 {
		v.Conns.Unbind(x.conn)
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// OnSendDone handles the completion of a notification. After a failure the connection is closed and the notification is
// tried again later.
func (n *Notices) OnSendDone(v *env.Env, h table.Handle, code effects.Code) {
	x := n.addresses.Get(h)
	x.sending = false
	if code != effects.OK {
		// The notification was not delivered.
		x.closeConn(v)
		n.scheduleRetry(v, h, x)
		return
	}
	n.dropFirst(x)
	n.sendNext(v, h)
}

// dropFirst removes the first notification of an address.
func (n *Notices) dropFirst(x *address) {
	first := x.queue.Front()
	d := n.rows.Get(first)
	n.noticeShare.Release(d.class)
	d.body = table.TrimBytes(d.body)
	n.rows.Unlink(&x.queue, first)
	n.rows.Remove(first)
}

// scheduleRetry schedules another attempt after a growing delay, and drops the first notification after its last
// attempt.
func (n *Notices) scheduleRetry(v *env.Env, h table.Handle, x *address) {
	d := n.rows.Get(x.queue.Front())
	d.failures++
	delay := min(n.cfg.BackoffMin<<min(d.failures-1, 20), n.cfg.BackoffMax)
	if d.failures >= n.cfg.TriesMax {
		v.Out.Mark(Marks.DoneGivenUp)
		n.dropFirst(x)
	}
	v.Timers.Set(&x.timer, v.Now.Add(delay), kernel.Ref{Owner: kernel.OwnerNotices, Subject: h})
}

// OnConnLost handles the loss of the connection to an address.
func (n *Notices) OnConnLost(v *env.Env, h table.Handle) {
	x := n.addresses.Get(h)
	if x.sending { // The completion of the notification in flight reports the loss.
		return
	}
	x.closeConn(v)
	if !n.addresses.InList(h) {
		n.sendNext(v, h)
	}
}

// CountUnfinished returns the number of notifications that were not delivered yet.
func (n *Notices) CountUnfinished() int { return n.rows.Len() }

// RecountShares counts the notifications of each class again, and the addresses that are needed: each other address must
// be idle.
func (n *Notices) RecountShares(r *table.Recount) {
	table.RecountRows(r, "notifications", &n.noticeShare, &n.rows, table.Empty, func(x *notice) (class, count int) { return x.class, 1 })
	for slot := range n.addresses.Slots() {
		if h := n.addresses.At(slot); h != 0 && n.addresses.Get(h).isNeeded() {
			r.Add(n.addresses.Get(h).class, 1)
		}
	}
	r.Report("done addresses", len(n.inUse), func(class int) int {
		return n.extraAddresses.CountOf(class) + int(min(n.inUse[class], 1)) // The first address of a class is not part of the share.
	}, table.Empty)
}

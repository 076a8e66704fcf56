package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/snapshot"
)

// proves is a message of a client that proved an identity.
func (r *rig) proves(p effects.Principal, roles effects.Roles, ch effects.Channel, m protocol.Message) *effects.Received {
	x := &effects.Received{Conn: 9, Principal: p, Roles: roles, Channel: ch, Body: m.Append(nil)}
	if ch.HasReplies() {
		r.request++
		x.Request = r.request
	}
	return x
}

// Whoever has proved an identity that has no role for a channel is refused, whatever it says, and is told so where it
// waits for an answer. A machine judges roles only of who has proved something.
func TestRolesOfClients(t *testing.T) {
	for _, ch := range channels {
		for _, body := range hostileBodies() {
			r := newBusyRig(t)
			was := snapshot.Hash(walker, &r.directory)
			r.request++
			x := effects.Received{Conn: 9, Principal: 5, Roles: effects.RoleProxy | effects.RoleDirectory, Channel: ch, Body: body}
			if ch.HasReplies() {
				x.Request = r.request
			}
			r.step(&x)
			if r.refused() != effects.Forbidden || snapshot.Hash(walker, &r.directory) != was {
				t.Errorf("%q on %v is refused by %v", body, ch, r.refused())
			}
			if a := r.answer(t); ch.HasReplies() {
				var e protocol.ErrorMsg
				want := "forbidden: security.policy is directory,proxy, want one of prefill,decode; "
				if err := e.Decode(a, nil); err != nil || !strings.HasPrefix(string(e.Error), want) {
					t.Errorf("on %v: %q", ch, e.Error)
				}
			} else if a != nil {
				t.Errorf("%q is answered on %v", a, ch)
			}
			for _, other := range []effects.Received{
				{}, {Roles: effects.RoleProxy}, {Principal: 5, Roles: effects.RoleDecode | effects.RoleProxy},
			} {
				other.Conn, other.Request, other.Channel, other.Body = 9, x.Request, ch, body
				if r.step(&other); r.refused() == effects.Forbidden {
					t.Errorf("%q on %v with %v of %d is forbidden", body, ch, other.Roles, other.Principal)
				}
			}
		}
	}
}

// Of a worker that has proved an identity, directories tell each other whose it is. A stranger does not take its place at
// any of them, whichever message it sends, and neither does a directory that has admitted the stranger.
func TestOwnersAreReplicated(t *testing.T) {
	const roles = effects.RoleDecode
	w, url := worker("a", 0), []byte("h:1")
	register := &protocol.RegisterMsg{Worker: w, Incarnation: protocol.UUID{1}, Listener: listener(), PeerInitURL: url}
	admit := &protocol.BatchedKVOperationMsg{Worker: w, Incarnation: protocol.UUID{1}, Location: []byte("cpu"),
		Operations: []protocol.KVOperation{{Key: protocol.ChunkHash{Bits: 1}}}}
	one := newLog(t)
	one.does(one.proves(7, roles, effects.ChannelDirectory, register))
	one.does(one.proves(7, roles, effects.ChannelFeed, admit))
	two, older := newLog(t), newLog(t)
	for n, e := range one.added {
		for rest := e.Frames; len(rest) > 0; {
			var kind sharedlog.FrameKind
			var body []byte
			var p sharedlog.Proven
			if kind, body, rest, _ = sharedlog.CutFrame(rest); kind != sharedlog.FrameProven || p.Decode(body) != nil || p.Principal != 7 {
				t.Errorf("it tells %v of %d", kind, p.Principal)
			}
		}
		e.Author, e.Number = 2, uint64(n)
		two.reads(e)
		two.pause()
	}
	if two.Figures().Chunks != 1 {
		t.Fatal("another directory does not have the chunk")
	}
	thief := *register
	thief.PeerInitURL = []byte("evil:1")
	for _, incarnation := range []byte{1, 2} {
		thief.Incarnation = protocol.UUID{incarnation}
		beat := protocol.HeartbeatMsg(thief)
		for _, p := range []effects.Principal{0, 8} {
			for _, m := range []protocol.Message{&thief, &beat} {
				if two.step(two.proves(p, roles, effects.ChannelDirectory, m)); two.refused() != effects.Forbidden {
					t.Errorf("%T of %d is refused by %v", m, p, two.refused())
				}
			}
			if two.step(two.proves(p, roles, effects.ChannelFeed, admit)); two.refused() != effects.Forbidden {
				t.Errorf("operations of %d are refused by %v", p, two.refused())
			}
		}
	}

	// A directory that does not know the worker admits the stranger, and tells of it.
	older.does(older.proves(8, roles, effects.ChannelDirectory, &thief))
	for n, e := range older.added {
		e.Author, e.Number = 3, uint64(n)
		two.reads(e)
		two.pause()
	}
	told := len(one.added)
	admit.Operations = []protocol.KVOperation{{Key: protocol.ChunkHash{Bits: 2}, Seq: 1}}
	one.does(one.proves(7, roles, effects.ChannelFeed, admit))
	for n, e := range one.added[told:] {
		e.Author, e.Number = 2, uint64(told+n)
		two.reads(e)
		two.pause()
	}
	if len(older.added) == 0 || two.Figures().Chunks != 2 {
		t.Fatalf("it knows %d chunks of the worker, whose directory goes on to tell of it", two.Figures().Chunks)
	}
	ask := protocol.BatchedP2PLookupMsg{Worker: worker("x", 0), Hashes: []protocol.ChunkHash{{Bits: 1}, {Bits: 2}}}
	two.hears(effects.ChannelDirectory, 5, ask.Append(nil))
	var a protocol.BatchedP2PLookupRetMsg
	if err := a.Decode(two.answer(t), nil); err != nil || len(a.Holders) != 1 || !slices.Equal(a.Holders[0].PeerInitURL, url) {
		t.Errorf("a lookup: %v, %+v", err, a.Holders)
	}
}

// pause lets time pass until the log is read again.
func (l *log) pause() {
	for range 2 {
		l.now = l.now.Add(effects.Second)
		l.does(&effects.Tick{})
	}
}

// Frames without a principal are read as before, of workers that proved nothing; and what no directory writes is passed
// over.
func TestFramesWithoutOwners(t *testing.T) {
	l := newLog(t)
	m := protocol.RegisterMsg{Worker: worker("a", 0), Listener: listener()}
	report := sharedlog.Report{Origin: 7, Body: m.Append(nil)}
	inner := sharedlog.Proven{Principal: 7, Kind: sharedlog.FrameReport, Body: report.Append(nil)}
	var odd []byte
	for _, p := range []sharedlog.Proven{
		{Principal: 0, Kind: sharedlog.FrameReport, Body: inner.Body}, {Principal: 7, Kind: sharedlog.FrameProven, Body: inner.Append(nil)},
		{Principal: 7, Kind: 99, Body: inner.Body}, {Principal: 7, Kind: sharedlog.FrameReport},
	} {
		odd = sharedlog.AppendFrame(odd, sharedlog.FrameProven, p.Append(nil))
	}
	l.reads(sharedlog.Entry{Author: 2, Frames: odd})
	if l.Figures().Workers != 0 {
		t.Fatal("it believes what no directory writes")
	}
	l.pause()
	l.reads(sharedlog.Entry{Author: 2, Number: 1, Frames: sharedlog.AppendFrame(nil, sharedlog.FrameReport, report.Append(nil))})
	if l.Figures().Workers != 1 {
		t.Fatal("it does not read what an older directory writes")
	}
	if l.step(l.proves(8, effects.RoleDecode, effects.ChannelDirectory, &m)); l.refused() != effects.OK {
		t.Errorf("a worker that proved nothing proves an identity: %v", l.refused())
	}
}

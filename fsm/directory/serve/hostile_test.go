package serve

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/snapshot"
)

// newBusyRig is a machine that has a little of everything: two workers, chunks, a sync under way.
func newBusyRig(t failer) *rig {
	r := newRig(t, nil)
	for _, name := range []string{"a", "b"} {
		w := worker(name, 0)
		say := func(ch effects.Channel, m protocol.Message) {
			if r.hears(ch, 1, m.Append(nil)); r.refused() != effects.OK {
				t.Fatalf("%T is refused: %v", m, r.refused())
			}
		}
		say(effects.ChannelDirectory, &protocol.RegisterMsg{Worker: w, Listener: listener(), PeerInitURL: []byte("h:1")})
		say(effects.ChannelFeed, &protocol.BatchedKVOperationMsg{
			Worker: w, Location: []byte("cpu"), Operations: []protocol.KVOperation{{Key: protocol.ChunkHash{Bits: 1}}},
		})
		say(effects.ChannelDirectory, &protocol.FullSyncStartMsg{
			Worker: w, Location: []byte("cpu"), SyncID: []byte("s"), BatchCount: 3,
		})
	}
	return r
}

var walker = snapshot.New()

// checkHostileMessage lets a machine hear bytes: what is asked is answered, what is no message of the channel changes
// nothing, and no deadline is left that a tick does not get past.
func checkHostileMessage(t failer, r *rig, ch effects.Channel, body []byte) {
	was := snapshot.Hash(walker, &r.directory)
	r.hears(ch, 9, body)
	if a := r.answer(t); (a != nil) != ch.HasReplies() {
		t.Fatalf("%q on %v is answered by %q", body, ch, a)
	} else if a != nil {
		if _, err := protocol.Describe(a, nil); err != nil {
			t.Fatalf("%q is answered by %q: %v", body, a, err)
		}
	}
	if code := r.refused(); code == effects.Malformed || code == effects.Unsupported {
		if snapshot.Hash(walker, &r.directory) != was {
			t.Fatalf("%q is refused by %v, and changes what is known", body, code)
		}
	}
	for n := 0; r.sweeps(); n++ {
		if n > 100 {
			t.Fatalf("after %q there is no end to the work", body)
		}
		r.step(&effects.Tick{})
	}
}

// hostileBodies are messages of all kinds, and what is none.
func hostileBodies() [][]byte {
	w := worker("a", 0)
	all := [][]byte{nil, {0xc1}, []byte("GET / HTTP/1.1\r\n"), []byte("{"), []byte(`{"type": "RegisterMsg"}`),
		{0x81, 0xa4}}
	for _, m := range []protocol.Message{
		&protocol.RegisterMsg{Worker: w, Listener: listener(), PeerInitURL: []byte("h:1")},
		&protocol.HeartbeatMsg{Worker: w, Listener: listener(), PeerInitURL: []byte("h:1")},
		&protocol.DeRegisterMsg{Worker: w, Listener: listener()},
		&protocol.BatchedP2PLookupMsg{Worker: w, Hashes: []protocol.ChunkHash{{Bits: 1}, {Bits: 1 << 63, Negative: true}}},
		&protocol.KVAdmitMsg{Worker: w, Location: []byte("cpu"), Seq: 3},
		&protocol.KVEvictMsg{Worker: w, Location: []byte("cpu")},
		&protocol.BatchedKVOperationMsg{Worker: w, Location: []byte("cpu"),
			Operations: []protocol.KVOperation{{Type: protocol.OpEvict}}},
		&protocol.FullSyncStartMsg{Worker: w, Location: []byte("cpu"), SyncID: []byte("s"), BatchCount: 1 << 31,
			Numbered: true},
		&protocol.FullSyncBatchMsg{Worker: w, Location: []byte("cpu"), SyncID: []byte("s"),
			Keys: []protocol.ChunkHash{{Bits: 2}}},
		&protocol.FullSyncEndMsg{Worker: w, Location: []byte("cpu"), SyncID: []byte("s"), ActualTotalKeys: 1 << 63},
		&protocol.FullSyncStatusMsg{Worker: w, SyncID: []byte("s")},
		&protocol.RegisterRetMsg{}, &protocol.ErrorMsg{}, &protocol.ProxyNotif{}, &protocol.P2PInitSideMsg{},
	} {
		all = append(all, m.Append(nil))
	}
	return all
}

// Bytes of anybody harm nobody.
func TestHostileBytes(t *testing.T) {
	from := hostileBodies()
	rapid.Check(t, func(t *rapid.T) {
		r := newBusyRig(t)
		t.Repeat(map[string]func(*rapid.T){
			"hear": func(t *rapid.T) {
				body := append([]byte(nil), rapid.SampledFrom(from).Draw(t, "body")...)
				for range rapid.IntRange(0, 3).Draw(t, "changes") {
					if at := rapid.IntRange(0, len(body)).Draw(t, "at"); rapid.Bool().Draw(t, "cut") || at == len(body) {
						body = body[:at]
					} else {
						body[at] = rapid.Byte().Draw(t, "byte")
					}
				}
				checkHostileMessage(t, r, rapid.SampledFrom(channels).Draw(t, "channel"), body)
			},
			"wait": func(t *rapid.T) {
				r.now = r.now.Add(effects.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * effects.Second)
				r.step(&effects.Tick{})
			},
		})
	})
}

// FuzzBytes is the same with bytes that grow out of what they reach.
func FuzzBytes(f *testing.F) {
	for _, b := range hostileBodies() {
		for ch := range channels {
			f.Add(uint8(ch), b)
		}
	}
	f.Fuzz(func(t *testing.T, ch uint8, body []byte) {
		r := newBusyRig(t)
		on := channels[int(ch)%len(channels)]
		checkHostileMessage(t, r, on, body)
		checkHostileMessage(t, r, on, body)
	})
}

// What a machine has no use for is answered where an answer is owed, and else passed over.
func TestOtherEvents(t *testing.T) {
	r := newBusyRig(t)
	was := snapshot.Hash(walker, &r.directory)
	for _, ev := range []effects.Event{&effects.Tick{}, &effects.ConnLost{Conn: 9}, &effects.Opened{},
		&effects.Command{Ticket: 3}} {
		r.step(ev)
		if _, owes := ev.(*effects.Command); owes != (r.out.Len() == 1) {
			t.Errorf("%T: %d effects", ev, r.out.Len())
		}
	}
	d, ok := r.out.At(0).(*effects.Deliver)
	if !ok || d.Ticket != 3 || d.Code != effects.Unsupported {
		t.Errorf("a command is ended by %+v", r.out.At(0))
	}
	if snapshot.Hash(walker, &r.directory) != was {
		t.Error("they change what is known")
	}
}

// The directory's word for a worker that it did not know is the one that workers look for.
func TestWordForAForgottenWorker(t *testing.T) {
	if directory.UnknownWorker.String() != protocol.ReasonForgotten {
		t.Errorf("%q, %q", directory.UnknownWorker, protocol.ReasonForgotten)
	}
}
